import type { WorkerGroup, WorkerGroupChange } from "@/api/types";
import { parseVariables, parseLines, parseNumber } from "@/lib/parse-input";

/** The dialog's controls, by the API's names. */
export const FIELDS = [
  "name",
  "masterAddress",
  "worldSize",
  "masterPort",
  "backend",
  "script",
  "args",
  "env",
  "secretEnv",
  "maxRestarts",
] as const;

type Field = (typeof FIELDS)[number];

/** Returns the texts of the dialog's fields. */
export function formatSettings(group: WorkerGroup): Record<Field, string> {
  return {
    name: group.name,
    masterAddress: group.masterAddress,
    worldSize: group.worldSize == null ? "" : String(group.worldSize),
    masterPort: String(group.masterPort),
    backend: group.backend,
    script: group.script,
    args: group.args.join("\n"),
    env: parsePairs(group.env),
    secretEnv: parsePairs(group.secretEnv),
    maxRestarts: String(group.maxRestarts),
  };
}

const parsePairs = (variables: Record<string, string>) =>
  Object.entries(variables)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");

const DEFAULT_PORT = 29500;

/**
 * Returns the change of the settings. Invalid numbers are sent as typed, so that the server says what is wrong with
 * them.
 */
export function buildSettingsChange(texts: Record<string, string>): WorkerGroupChange {
  const text = (field: Field) => texts[field] ?? "";
  return {
    name: text("name"),
    masterAddress: text("masterAddress"),
    worldSize: text("worldSize") ? (parseNumber(text("worldSize")) as number) : null,
    masterPort: parseNumber(text("masterPort") || String(DEFAULT_PORT)) as number,
    backend: text("backend") as WorkerGroup["backend"],
    script: text("script"),
    args: parseLines(text("args")),
    env: parseVariables(text("env")),
    secretEnv: parseVariables(text("secretEnv")),
    maxRestarts: parseNumber(text("maxRestarts") || "0") as number,
  };
}
