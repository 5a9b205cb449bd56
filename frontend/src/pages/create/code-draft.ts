import type { CreateRequest } from "@/api/types";

type CodeRequest = NonNullable<CreateRequest["code"]>;

/** Where a task's code comes from; empty: the ranks start in a folder of the node. */
export const CODE_SOURCES = ["", "environment", "git", "snapshot"] as const;
export type CodeSource = (typeof CODE_SOURCES)[number];

/** What was typed for one source is there again when it is chosen again. */
export interface CodeDraft {
  source: CodeSource;
  /** Of the master environment: a folder of its working directory. */
  path: string;
  url: string;
  revision: string;
  secret: string;
  snapshot: string;
  requirements: string;
  /** Of the snapshot that a cloned task ran: where it was taken from. */
  taken: SnapshotOrigin | null;
}

interface SnapshotOrigin {
  snapshot: string;
  /** Whose folder it was taken from, where it was an environment's. */
  master: string;
  from: Pick<CodeRequest, "git" | "environment" | "path">;
  /** Whether the code has changed there since. */
  changed?: boolean;
}

export const NO_CODE: CodeDraft = {
  source: "",
  path: "",
  url: "",
  revision: "",
  secret: "",
  snapshot: "",
  requirements: "",
  taken: null,
};

/** What is left empty is the platform's to fill in. `master`: of the task that is asked for. */
export function buildCodeRequest(draft: CodeDraft, master: string): Pick<CreateRequest, "code"> {
  const given = (name: "path" | "revision" | "secret" | "requirements") => {
    const text = draft[name].trim();
    return text ? { [name]: text } : {};
  };
  const requirements = given("requirements");
  if (draft.source === "environment") return { code: { environment: "master", ...given("path"), ...requirements } };
  if (draft.source === "snapshot") {
    return { code: { snapshot: draft.snapshot, ...getSource(draft, master), ...requirements } };
  }
  if (draft.source !== "git") return {};
  return { code: { git: { url: draft.url.trim(), ...given("revision"), ...given("secret") }, ...requirements } };
}

/** The draft that takes the code anew from where its snapshot was taken from. */
export function buildRefetchDraft(draft: CodeDraft): CodeDraft {
  const { taken } = draft;
  return taken
    ? { ...draft, source: taken.from.git ? "git" : "environment", taken: { ...taken, changed: true } }
    : draft;
}

/** Where the chosen snapshot was taken from, as far as a request can name that: of environments it names its master. */
function getSource({ taken, snapshot }: CodeDraft, master: string): SnapshotOrigin["from"] {
  if (taken?.snapshot !== snapshot) return {};
  return taken.from.git || taken.master === master ? taken.from : {};
}

/** The draft that would send `code`, of a task with that master. */
export function parseCodeRequest(code: CodeRequest | null | undefined, master: string): CodeDraft {
  if (!code) return NO_CODE;
  const { snapshot, git, environment, path, requirements } = code;
  const from = git ? { git } : environment ? { environment, ...(path && { path }) } : null;
  return {
    source: snapshot ? "snapshot" : git ? "git" : environment ? "environment" : "",
    path: path && path !== "." ? path : "",
    url: git?.url ?? "",
    revision: git?.revision ?? "",
    secret: git?.secret ?? "",
    snapshot: snapshot ?? "",
    requirements: requirements && requirements !== "auto" ? requirements : "",
    taken: snapshot && from ? { snapshot, master, from } : null,
  };
}
