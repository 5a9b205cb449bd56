import type { LaunchCommand } from "@/api/types";
import { joinWords } from "@/lib/shell-words";
import type { Draft } from "./draft";

type Entrypoint = LaunchCommand["entrypoint"];

/** Formats an entry point as it would be typed in a shell. */
export function formatEntrypoint({ script, module, command, args }: Entrypoint): string {
  const words = command ?? ["python", ...(module ? ["-m", module] : [script ?? ""]), ...(args ?? [])];
  return joinWords(words);
}

/** Returns the change of the draft that makes a launch command its entry point, with its variables. */
export function applyLaunchCommand(draft: Draft, found: LaunchCommand, entrypoint = found.entrypoint): Partial<Draft> {
  const { script = "", module, command, args = [], processes } = entrypoint;
  const named = new Set(Object.keys(found.env));
  const kept = draft.env.split("\n").filter((line) => line.trim() && !named.has(line.split("=", 1)[0]?.trim() ?? ""));
  const added = Object.entries(found.env).map(([name, value]) => `${name}=${value}`);
  return {
    what: "script",
    script: module ? `-m ${module}` : script,
    command: joinWords(command ?? []),
    args: args.join("\n"),
    processes,
    env: [...kept, ...added].join("\n"),
    ...(found.framework && { framework: found.framework }),
    ...(found.maxRestarts != null && { plain: { ...draft.plain, maxRestarts: String(found.maxRestarts) } }),
  };
}
