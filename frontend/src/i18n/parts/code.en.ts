import type { Translated } from "../zh";
import type zh from "./code.zh";

const en: Translated<typeof zh> = {
  none: "This task has no code of its own",
  noneHint:
    "It runs in the folder that its nodes already have. Use fermi submit --code . to give every node the same code.",
  fetching: "Fetching the code",
  snapshot: "Snapshot",
  origin: "Origin",
  uploaded: "uploaded folder",
  commit: "Commit",
  branch: "Branch",
  dirty: "with uncommitted changes",
  counted_one: "{{count, number}} file, {{size}}",
  counted_other: "{{count, number}} files, {{size}}",
  requirements: "Packages",
  bring: "Get the code",
  tree: "Files",
  changes: "Changes since the previous task",
  against: "Compared with {{task}}",
  noPrevious: "No previous task of this name has code of its own",
  same: "The code has not changed",
  root: "root",
  binary: "Not text; cannot be shown",
  cut: "Too long to show completely",
  change: { added: "added", removed: "removed", changed: "changed" },
  choose: "Choose a file",
  ask: {
    source: "Code",
    sourceHint:
      "The code of a task becomes a snapshot: every node gets the same files, and restarts and clones use them again.",
    changed:
      "The code has changed since snapshot {{snapshot}}, which the cloned task ran. You can also choose that snapshot here.",
    sourceOf: {
      none: "None: use the files on the node",
      environment: "The working directory of the master environment",
      git: "A Git repository",
      snapshot: "An earlier snapshot",
    },
    path: "Folder",
    pathHint: "Relative to the working directory. Empty: the whole directory.",
    url: "Repository",
    urlHint: "https:// or ssh://, without a password.",
    revision: "Revision",
    revisionHint: "A branch, a tag or a commit. Empty: the default branch.",
    secret: "Secret",
    secretHint: "A secret of the project: a token for https, a private key for ssh.",
    noSecret: "None (public repository)",
    snapshotHint: "The newest snapshots of the project.",
    chooseSnapshot: "Choose a snapshot",
    requirements: "Packages",
    requirementsHint:
      "Empty: uv.lock or requirements.txt in the root folder, if present. off: install nothing. Or name one of its files.",
  },
};

export default en;
