import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { type ITerminalOptions, type ITheme, Terminal as Xterm } from "@xterm/xterm";
import { useQueryClient } from "@tanstack/react-query";
import { Accessibility, ClipboardPaste, Copy, RotateCw } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { TFunction } from "i18next";
import { type Theme, useTheme } from "@/app/theme";
import { useLocalStorage } from "@/lib/use-local-storage";
import { Badge, Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { toastError } from "@/ui/errors";
import { connectShell, type ShellEnd, type Shell } from "./channel";
import type { ShellStart } from "./protocol";

interface TerminalProps {
  /** The path of the platform's WebSocket. */
  path: string;
  /** The label for screen readers. */
  label: string;
}

type State = "connecting" | "open" | ShellEnd;

/** What the platform closes the connection with when its user has lost access. */
const ACCESS_ENDED = "DOOR_CLOSED";
const CODE = /^[A-Z_]+$/;

/** How long until the terminal says what it is waiting for; a shell that prints nothing reports it by itself. */
const SILENT_MS = 3_000;

/** A login shell. "Reconnect" starts another; the text of the last one stays. */
export default function Terminal({ path, label }: TerminalProps) {
  const { t } = useTranslation();
  const theme = useTheme();
  const box = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLButtonElement>(null);
  const [terminal, setTerminal] = useState<Xterm>();
  const [state, setState] = useState<State>("connecting");
  const [waits, setWaits] = useState<"connection" | ShellStart>();
  const [round, setRound] = useState(0);
  const client = useQueryClient();
  const [reader, setReader] = useLocalStorage("terminal.reader");
  useEffect(() => {
    if (!box.current) return;
    const made = new Xterm({ fontSize: 13, fontFamily: monospace(), scrollback: 10_000, cursorBlink: false });
    const fit = new FitAddon();
    made.loadAddon(fit);
    made.open(box.current);
    made.attachCustomKeyEventHandler((event) => isShellKey(event, made, () => first.current?.focus()));
    fit.fit();
    const watch = new ResizeObserver(() => fit.fit());
    watch.observe(box.current);
    setTerminal(made);
    made.focus();
    return () => {
      watch.disconnect();
      made.dispose();
    };
  }, []);
  useEffect(() => {
    if (terminal) setTerminalOptions(terminal, { theme: COLOURS[theme], screenReaderMode: reader === "on" });
  }, [terminal, theme, reader]);
  useEffect(() => terminal?.textarea?.setAttribute("aria-label", label), [terminal, label]);
  useEffect(() => {
    if (!terminal) return;
    const shell = connectShell(
      path,
      { columns: terminal.cols, rows: terminal.rows },
      {
        onOpen: () => {
          setState("open");
          message();
        },
        onOutput: (bytes, done) => {
          message();
          terminal.write(bytes, done);
        },
        onStarting: setWaits,
        onEnd: (ending) => {
          setState(ending);
          message();
          if (isAccessEnded(ending)) void client.invalidateQueries(); // what else the page shows may be gone, too
        },
      },
    );
    const slow = setTimeout(() => setWaits("connection"), SILENT_MS);
    const message = () => {
      clearTimeout(slow);
      setWaits(undefined);
    };
    const leave = connectTerminal(terminal, shell);
    return () => {
      message();
      leave();
    };
  }, [terminal, path, round, client]);
  const again = () => {
    terminal?.write("\r\n");
    setState("connecting");
    setRound(round + 1);
    terminal?.focus();
  };
  const paste = async () => {
    try {
      terminal?.paste(await navigator.clipboard.readText());
      terminal?.focus();
    } catch (error) {
      toastError(t, error);
    }
  };
  const over = typeof state === "object";
  return (
    <div className="space-y-2">
      <div className="flex flex-wrap items-center gap-2">
        <span role="status">
          <Badge tone={state === "open" ? "ok" : over ? "warn" : "info"}>
            {t(over ? "terminal.closed" : `terminal.${state}`)}
          </Badge>
        </span>
        <span className="flex-1" />
        <Button ref={first} size="sm" look={over ? "primary" : "ghost"} onClick={again}>
          <RotateCw />
          {t(over ? "terminal.reconnect" : "terminal.anew")}
        </Button>
        <Button look="ghost" size="sm" onClick={() => terminal && copySelected(terminal)}>
          <Copy />
          {t("terminal.copy")}
        </Button>
        {window.isSecureContext && (
          <Button look="ghost" size="sm" onClick={() => void paste()}>
            <ClipboardPaste />
            {t("terminal.paste")}
          </Button>
        )}
        <Button
          look="ghost"
          size="sm"
          aria-pressed={reader === "on"}
          onClick={() => setReader(reader === "on" ? null : "on")}
        >
          <Accessibility />
          {t("terminal.reader")}
        </Button>
      </div>
      {over && (
        <Callout tone={state.kind === "exited" ? "info" : "warn"} role="alert">
          {describeEnd(t, state)}
        </Callout>
      )}
      {waits && (
        <Callout tone="info" role="status">
          {waits === "connection" ? t("terminal.opens") : describeStart(t, waits)}
        </Callout>
      )}
      <div
        ref={box}
        role="group"
        aria-label={label}
        data-terminal={over ? "closed" : state}
        className="h-[28rem] max-h-[70dvh] overflow-hidden rounded-lg border p-2"
        style={{ backgroundColor: COLOURS[theme].background }}
      />
      <p className="text-xs text-muted">{t("terminal.hint")}</p>
    </div>
  );
}

function setTerminalOptions(terminal: Xterm, options: ITerminalOptions): void {
  terminal.options = options;
}

/** Connects input and size of the terminal to the shell. Returns a function that disconnects them. */
function connectTerminal(terminal: Xterm, shell: Shell): () => void {
  const ears = [
    terminal.onData((text) => shell.type(text)),
    terminal.onBinary((text) => shell.typeBytes(text)),
    terminal.onResize(({ cols, rows }) => shell.resize({ columns: cols, rows })),
  ];
  return () => {
    for (const ear of ears) ear.dispose();
    shell.close();
  };
}

/** Returns whether the shell gets a key. F6 leaves the terminal, and Ctrl+Shift+C and V use the clipboard. */
function isShellKey(event: KeyboardEvent, terminal: Xterm, leave: () => void): boolean {
  if (event.type !== "keydown") return true;
  if (event.key === "F6") {
    event.preventDefault();
    leave();
    return false;
  }
  if (!event.ctrlKey || !event.shiftKey) return true;
  if (event.code === "KeyC") {
    event.preventDefault();
    copySelected(terminal);
    return false;
  }
  return event.code !== "KeyV"; // the browser pastes
}

/** Copies the selection with the browser's copy event, which works without https, too. */
function copySelected(terminal: Xterm): void {
  terminal.focus();
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- navigator.clipboard is there with https only
  document.execCommand("copy");
}

function describeStart(t: TFunction, { files, command }: ShellStart): string {
  const parts = [t("terminal.starts")];
  if (files.length > 0) parts.push(t("terminal.reads", { files: files.join(", ") }));
  if (command) parts.push(t("terminal.runs", { command }));
  return parts.join(t("terminal.between"));
}

const isAccessEnded = (ending: ShellEnd) => ending.kind === "lost" && ending.why === ACCESS_ENDED;

function describeEnd(t: TFunction, ending: ShellEnd): string {
  if (ending.kind === "exited") return t("terminal.exited", { code: ending.code });
  if (ending.kind === "refused") return t("terminal.refused", { why: ending.why });
  if (isAccessEnded(ending)) return t("terminal.accessEnded");
  return ending.why && !CODE.test(ending.why) ? t("terminal.lostBecause", { why: ending.why }) : t("terminal.lost");
}

const monospace = () => getComputedStyle(document.documentElement).getPropertyValue("--font-mono") || "monospace";

/** Colours with WCAG AA contrast, except black on the dark and white on the light background. */
const COLOURS: Record<Theme, ITheme> = {
  light: {
    background: "#ffffff",
    foreground: "#0f172a",
    cursor: "#6d28d9",
    cursorAccent: "#ffffff",
    selectionBackground: "#ddd6fe",
    black: "#0f172a",
    red: "#b91c1c",
    green: "#166534",
    yellow: "#854d0e",
    blue: "#1d4ed8",
    magenta: "#86198f",
    cyan: "#155e75",
    white: "#64748b",
    brightBlack: "#475569",
    brightRed: "#dc2626",
    brightGreen: "#15803d",
    brightYellow: "#a16207",
    brightBlue: "#2563eb",
    brightMagenta: "#a21caf",
    brightCyan: "#0e7490",
    brightWhite: "#334155",
  },
  dark: {
    background: "#0b1120",
    foreground: "#e2e8f0",
    cursor: "#c4b5fd",
    cursorAccent: "#0b1120",
    selectionBackground: "#4c3d85",
    black: "#475569",
    red: "#f87171",
    green: "#4ade80",
    yellow: "#facc15",
    blue: "#60a5fa",
    magenta: "#e879f9",
    cyan: "#22d3ee",
    white: "#cbd5e1",
    brightBlack: "#94a3b8",
    brightRed: "#fca5a5",
    brightGreen: "#86efac",
    brightYellow: "#fde047",
    brightBlue: "#93c5fd",
    brightMagenta: "#f0abfc",
    brightCyan: "#67e8f9",
    brightWhite: "#f8fafc",
  },
};
