import { type Draft, EMPTY_DRAFT } from "./draft";

/**
 * Drafts are kept in session storage: they survive a reload, but do not outlive the tab, as they may hold variables.
 */
const PREFIX = "fermi.draft";

/**
 * Opens the storage for one form. `owner` is the user; `origin` is what the form started from, such as a cloned task.
 */
export function openDraftStorage(owner: string, origin: string) {
  const key = [PREFIX, owner, origin].join("/");
  return {
    load: (): Draft | undefined => {
      try {
        const text = sessionStorage.getItem(key);
        return text ? { ...EMPTY_DRAFT, ...(JSON.parse(text) as Partial<Draft>) } : undefined;
      } catch {
        return undefined; // storage is disabled, or holds a draft of another version
      }
    },
    save: (draft: Draft): void => {
      try {
        sessionStorage.setItem(key, JSON.stringify(draft));
      } catch {
        // storage is disabled or full: the form works without it
      }
    },
    drop: (): void => {
      try {
        sessionStorage.removeItem(key);
      } catch {
        // nothing was stored
      }
    },
  };
}

export type DraftStorage = ReturnType<typeof openDraftStorage>;
