import type { Translated } from "../zh";
import type zh from "./code.zh";

const en: Translated<typeof zh> = {
  none: "This task brings no code",
  noneHint: "It runs in what its nodes have. With fermi submit --code . every node gets the same code.",
  fetching: "The code is being fetched",
  snapshot: "Snapshot",
  origin: "Origin",
  uploaded: "a folder that was sent",
  commit: "Commit",
  branch: "Branch",
  dirty: "with changes that are not committed",
  counted_one: "{{count, number}} file, {{size}}",
  counted_other: "{{count, number}} files, {{size}}",
  requirements: "Packages",
  bring: "Bring it back",
  tree: "Files",
  changes: "Changes since the task before",
  against: "Compared with {{task}}",
  noPrevious: "There is no earlier task of this name that brought code",
  same: "The code has not changed",
  root: "root",
  binary: "Not text",
  cut: "Too long to be shown whole",
  change: { added: "added", removed: "removed", changed: "changed" },
  choose: "Choose a file",
  ask: {
    source: "Code",
    sourceHint:
      "What a task brings becomes a snapshot: every node gets the same files, and restarts and clones run them.",
    changed:
      "The code has changed since snapshot {{snapshot}}, which the cloned task ran; that can be chosen here, too.",
    sourceOf: {
      none: "None: the files that are on the node",
      environment: "The working directory of the master environment",
      git: "A Git repository",
      snapshot: "A snapshot of before",
    },
    path: "Folder",
    pathHint: "From the working directory. Empty: all of it.",
    url: "Repository",
    urlHint: "https:// or ssh://, without a password in it.",
    revision: "Revision",
    revisionHint: "A branch, a tag or a commit. Empty: the default branch.",
    secret: "Secret",
    secretHint: "Of the project: a token for https, a private key for ssh.",
    noSecret: "None, it is public",
    snapshotHint: "The newest of the project.",
    chooseSnapshot: "Choose a snapshot",
    requirements: "Packages",
    requirementsHint: "Empty: uv.lock or requirements.txt in its root, if there is one. off: none. Or a file of it.",
  },
};

export default en;
