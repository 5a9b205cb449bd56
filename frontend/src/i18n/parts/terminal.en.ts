import type { Translated } from "../zh";
import type zh from "./terminal.zh";

const en: Translated<typeof zh> = {
  ofRank: "Terminal beside rank {{rank}}",
  connecting: "Connecting…",
  open: "Connected",
  closed: "Closed",
  reconnect: "Reconnect",
  anew: "New shell",
  copy: "Copy selected",
  paste: "Paste",
  reader: "Screen reader mode",
  hint: "Ctrl+Shift+C copies, Ctrl+Shift+V pastes, F6 leaves the terminal. Who opens a terminal is in the audit trail.",
  opens: "Not connected yet: the platform is opening the terminal.",
  starts: "The login shell is starting, and has printed nothing yet.",
  reads: "It reads {{files}}.",
  runs: "It waits for: {{command}}",
  between: " ",
  exited: "The shell has ended with exit code {{code}}.",
  refused: "It was not opened: {{why}}",
  lost: "The connection is gone, and the shell with it. Reconnect for a new one.",
  lostBecause: "The connection is gone: {{why}}",
  notRunning: "A terminal beside a rank can be opened while the task runs.",
  beside: "On the node of rank {{rank}}, with its variables and in its working directory.",
};
export default en;
