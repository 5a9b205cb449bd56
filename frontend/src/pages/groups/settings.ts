import type { WorkerGroup, WorkerGroupChange } from "@/api/types";
import { parseVariables, parseLines, parseNumber } from "@/lib/parse-input";

/** Names of the dialog's controls, as the API has them. */
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

/** The dialog's texts. */
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

/** What is not a number is sent as it was typed, so that the server's own words say what is wrong with it. */
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
