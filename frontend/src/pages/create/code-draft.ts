import type { CreateRequest } from "@/api/types";

type CodeRequest = NonNullable<CreateRequest["code"]>;

/** Sources of a task's code; "": none, ranks start in a folder of the node. */
export const CODE_SOURCES = ["", "environment", "git", "snapshot"] as const;
export type CodeSource = (typeof CODE_SOURCES)[number];

/** What was typed for each source is kept while another is chosen. */
export interface CodeDraft {
  source: CodeSource;
  /** A folder in the working directory of the master environment. */
  path: string;
  url: string;
  revision: string;
  secret: string;
  snapshot: string;
  requirements: string;
  /** Where the snapshot of a cloned task was taken from. */
  taken: SnapshotOrigin | null;
}

interface SnapshotOrigin {
  snapshot: string;
  /** The environment that it was taken from, if any. */
  master: string;
  from: Pick<CodeRequest, "git" | "environment" | "path">;
  /** Whether the code has changed since. */
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

/** Returns the code of a request, without empty fields. `master` is the task's master environment. */
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

/** Returns the draft that takes the code again from where the snapshot was taken. */
export function buildRefetchDraft(draft: CodeDraft): CodeDraft {
  const { taken } = draft;
  return taken
    ? { ...draft, source: taken.from.git ? "git" : "environment", taken: { ...taken, changed: true } }
    : draft;
}

/** Returns where the snapshot was taken from, if a request can name it: only the master among environments. */
function getSource({ taken, snapshot }: CodeDraft, master: string): SnapshotOrigin["from"] {
  if (taken?.snapshot !== snapshot) return {};
  return taken.from.git || taken.master === master ? taken.from : {};
}

/** Returns the draft of a request's code. `master` is the task's master environment. */
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
