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
}

export const NO_CODE: CodeDraft = {
  source: "",
  path: "",
  url: "",
  revision: "",
  secret: "",
  snapshot: "",
  requirements: "",
};

/** What is left empty is the platform's to fill in. */
export function codeRequest(draft: CodeDraft): Pick<CreateRequest, "code"> {
  const given = (name: "path" | "revision" | "secret" | "requirements") => {
    const text = draft[name].trim();
    return text ? { [name]: text } : {};
  };
  const requirements = given("requirements");
  if (draft.source === "environment") return { code: { environment: "master", ...given("path"), ...requirements } };
  if (draft.source === "snapshot") return { code: { snapshot: draft.snapshot, ...requirements } };
  if (draft.source !== "git") return {};
  return { code: { git: { url: draft.url.trim(), ...given("revision"), ...given("secret") }, ...requirements } };
}

/** The draft that would send `code`. */
export function codeDraft(code: CodeRequest | null | undefined): CodeDraft {
  if (!code) return NO_CODE;
  const { snapshot, git, environment, path, requirements } = code;
  return {
    source: snapshot ? "snapshot" : git ? "git" : environment ? "environment" : "",
    path: path && path !== "." ? path : "",
    url: git?.url ?? "",
    revision: git?.revision ?? "",
    secret: git?.secret ?? "",
    snapshot: snapshot ?? "",
    requirements: requirements && requirements !== "auto" ? requirements : "",
  };
}
