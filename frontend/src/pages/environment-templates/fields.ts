import type { EnvironmentTemplate, FormBody } from "@/api/managed-environments";
import { parseLines, parseNumber } from "@/lib/parse-input";
import type { Pair } from "@/ui/managed-environment/pairs-field";

const TEXTS = ["name", "description", "kind", "image", "gpuType", "startScript"] as const;
export const NUMBERS = ["gpuCount", "cpuCores", "memoryGb", "sharedMemoryGb", "diskGb"] as const;

/** The dialog's fields, by the API's names. */
export const FIELDS = [
  ...TEXTS,
  ...NUMBERS,
  "projectId",
  "clusterId",
  "zone",
  "packages",
  "emulated",
  "idleStopMinutes",
  "ports",
  "env",
  "secretEnv",
] as const;

type FormTexts = Pick<EnvironmentTemplate, "ports" | "env" | "secretEnv">;

export const formatPorts = ({ ports }: FormTexts): Pair[] => ports.map(({ name, port }) => [name, String(port)]);
export const formatRows = (variables: Record<string, string>): Pair[] => Object.entries(variables);

const pairs = (text: string | undefined) => JSON.parse(text ?? "[]") as Pair[];
const trimmed = (text: string | undefined) =>
  Object.fromEntries(pairs(text).map(([name, value]) => [name.trim(), value]));

/** Returns the template of the dialog. Invalid numbers are sent as typed. */
export function buildTemplateBody(texts: Record<string, string>): FormBody {
  return {
    ...Object.fromEntries(TEXTS.map((name) => [name, texts[name] ?? ""])),
    ...Object.fromEntries(NUMBERS.map((name) => [name, texts[name] ? parseNumber(texts[name]) : 0])),
    clusterId: texts.clusterId ? texts.clusterId : null,
    zone: texts.zone ? texts.zone : null,
    emulated: texts.emulated === "on",
    packages: parseLines(texts.packages ?? "").map((line) => line.trim()),
    idleStopMinutes: texts.idleStopMinutes ? parseNumber(texts.idleStopMinutes) : null,
    ports: pairs(texts.ports).map(([name, port]) => ({ name: name.trim(), port: parseNumber(port) })),
    env: trimmed(texts.env),
    secretEnv: trimmed(texts.secretEnv),
  };
}
