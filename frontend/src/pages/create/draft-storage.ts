import { type Draft, EMPTY_DRAFT } from "./draft";

/** Drafts live as long as their tab: they survive a reload, and environment variables in them do not stay behind. */
const PREFIX = "fermi.draft";

/** `owner`: who is signed in; `origin`: what the form was opened with, such as the task it clones. */
export function openDraftStorage(owner: string, origin: string) {
  const key = [PREFIX, owner, origin].join("/");
  return {
    load: (): Draft | undefined => {
      try {
        const text = sessionStorage.getItem(key);
        return text ? { ...EMPTY_DRAFT, ...(JSON.parse(text) as Partial<Draft>) } : undefined;
      } catch {
        return undefined; // storage is off, or holds what another version wrote
      }
    },
    save: (draft: Draft): void => {
      try {
        sessionStorage.setItem(key, JSON.stringify(draft));
      } catch {
        // Storage is off or full: the form works without it.
      }
    },
    drop: (): void => {
      try {
        sessionStorage.removeItem(key);
      } catch {
        // Nothing was stored.
      }
    },
  };
}

export type DraftStorage = ReturnType<typeof openDraftStorage>;
