import type zh from "./code.zh";

const en: typeof zh = {
  none: "This task brings no code",
  noneHint: "It runs in what its nodes have. With fermi submit --code . every node gets the same code.",
  fetching: "The code is being fetched",
  snapshot: "Snapshot",
  origin: "Origin",
  uploaded: "a folder that was sent",
  commit: "Commit",
  branch: "Branch",
  dirty: "with changes that are not committed",
  counted: "{{files}} files, {{size}}",
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
};

export default en;
