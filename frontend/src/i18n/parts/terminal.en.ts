import type { Translated } from "../zh";
import type zh from "./terminal.zh";

const en: Translated<typeof zh> = {
  ofRank: "Terminal of rank {{rank}}",
  connecting: "Connecting…",
  open: "Connected",
  closed: "Closed",
  reconnect: "Reconnect",
  anew: "New shell",
  copy: "Copy selected",
  paste: "Paste",
  reader: "Screen reader mode",
  hint: "Ctrl+Shift+C copies, Ctrl+Shift+V pastes, F6 leaves the terminal. Opening a terminal is recorded in the audit trail.",
  opens: "Not connected yet: the platform is opening the terminal.",
  starts: "The login shell is starting, and has printed nothing yet.",
  reads: "Reading {{files}}.",
  runs: "Waiting for: {{command}}",
  between: " ",
  exited: "The shell has ended with exit code {{code}}.",
  refused: "The terminal was not opened: {{why}}",
  lost: "The connection was lost, and the shell ended with it. Reconnect to open a new shell.",
  lostBecause: "The connection was lost: {{why}}",
  notRunning: "You can open a terminal for a rank while the task is running.",
  beside: "On the node of rank {{rank}}, with its variables and in its working directory.",
};
export default en;
