import { CHOICE_FIELDS, TEXT_FIELDS } from "@/api/request-schema";
import type { Problem } from "@/api/types";
import { focusNamedControl } from "@/lib/focus-control";
import type { Draft } from "./draft";

export type ProblemsByField = ReadonlyMap<string, Problem[]>;

const ENVIRONMENT = /^(?:environmentIds|distributedConfig\.nodeIds)(?:\.(\d+))?$/;

/**
 * Returns the name of the control for a problem's field. Environments are numbered in the order of selection: their
 * control is `environments.<id>`, or `environments` for all.
 */
export function getControlName(field: string, selected: string[]): string {
  const match = ENVIRONMENT.exec(field);
  if (!match) return field;
  const id = match[1] === undefined ? undefined : selected[Number(match[1])];
  return id === undefined ? "environments" : `environments.${id}`;
}

export function groupByField(problems: Problem[], selected: string[]): ProblemsByField {
  const map = new Map<string, Problem[]>();
  for (const problem of problems) {
    const name = getControlName(problem.field, selected);
    map.set(name, [...(map.get(name) ?? []), problem]);
  }
  return map;
}

/** Returns the problems of a field and of everything inside it, one per line. */
export function getProblemText(problems: ProblemsByField, field: string): string | undefined {
  const texts = [...problems]
    .filter(([name]) => name === field || name.startsWith(`${field}.`))
    .flatMap(([, found]) => found.map(({ message, hint }) => (hint ? `${message} ${hint}` : message)));
  return texts.length > 0 ? texts.join("\n") : undefined;
}

const PARTS: [prefix: string, part: keyof Draft][] = [
  ["taskName", "taskName"],
  ["tags", "tags"],
  ["datasetId", "datasetId"],
  ["datasetVersionId", "datasetVersionId"],
  ["modelId", "modelId"],
  ["hyperparameters", "hyperparameters"],
  ["launchMode", "launchMode"],
  ["newEnvironments", "made"],
  ["code", "code"],
  ["entrypoint", "script"],
  ["env.", "env"],
  ["secretEnv", "secrets"],
  ["spareEnvironmentIds", "spareIds"],
  ["distributedConfig.select", "capacity"],
  ["distributedConfig.python", "python"],
  ["preemptible", "preemptible"],
  ...[...TEXT_FIELDS, ...CHOICE_FIELDS].map((name): [string, keyof Draft] => [name, "plain"]),
];

/** Returns the section of the draft that a problem belongs to. */
export function getFormSection(field: string): keyof Draft {
  return PARTS.find(([prefix]) => field.startsWith(prefix))?.[1] ?? "selected";
}

/** Fields that share another field's control. */
const SHARED: Record<string, string> = { "entrypoint.module": "entrypoint.script" };

/** Scrolls to the control of that name, or the nearest that contains it, and focuses it. */
export const focusControl = (form: HTMLFormElement, name: string) => focusNamedControl(form, name, SHARED);
