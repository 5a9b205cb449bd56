import {
  CHOICE_FIELDS,
  DISTRIBUTED_CONFIG,
  isNumber,
  TEXT_FIELDS,
  REQUEST,
  getUnitSeconds,
} from "@/api/request-schema";
import type { CreateRequest, Framework } from "@/api/types";
import { parseDuration, formatDurationInput, parseVariables, parseLines, parseNumber } from "@/lib/parse-input";
import { joinWords, splitWords } from "@/lib/shell-words";
import { type CapacityRequest, parseSelect, buildSelect } from "./capacity";
import { type CodeDraft, parseCodeRequest, buildCodeRequest, NO_CODE } from "./code-draft";
import { findFramework, getOptionRules, formatOption, parseOption } from "./options";

export const DEFAULT_FRAMEWORK = DISTRIBUTED_CONFIG.framework?.default as string;
/** The launch mode that creates environments for the task. */
export const NEW_ENVIRONMENTS_MODE = "new";
export const DEFAULT_LAUNCH_MODE = REQUEST.launchMode?.default as string;

/** Settings that belong to one framework, as texts by the API's names. */
export interface FrameworkSettings {
  strategy: Record<string, string>;
  options: Record<string, string>;
}

const DEFAULT_SETTINGS: FrameworkSettings = { strategy: {}, options: {} };

/** The form's state: texts where a person types. */
export interface Draft {
  taskName: string;
  /** Separated by commas. */
  tags: string;
  /** A model with the platform's trainer, or the user's own script. */
  what: "model" | "script";
  datasetId: string;
  datasetVersionId: string;
  modelId: string;
  launchMode: string;
  /** Environments to be created in `NEW_ENVIRONMENTS_MODE`, and what happens to them afterwards. */
  made: { template: string; count: string; afterwards: string; clusterId?: string; zone?: string };
  /** In the order of selection. */
  selected: string[];
  /** Capacity that is requested instead of `selected`; null: `selected` is meant. */
  capacity: CapacityRequest | null;
  /** Empty: the project of the environments. */
  projectId: string;
  /** Whether tasks with a higher priority may preempt it. */
  preemptible: boolean;
  /** Environments that replace a lost one, in the order of selection. */
  spareIds: string[];
  /** Empty: none is selected. */
  master: string;
  framework: string;
  /** By framework, so that nothing is lost when another one is tried. */
  tuning: Record<string, FrameworkSettings>;
  /** The range of nodes of an elastic task; both empty: not elastic. */
  minNodes: string;
  maxNodes: string;
  masterPort: string;
  backend: string;
  /** Where the ranks run; empty: the platform decides. */
  runIn: string;
  /** The interpreter inside the environments; empty: that of the notebook. */
  python: string;
  hyperparameters: Record<string, string>;
  code: CodeDraft;
  /** A path, or `-m` and a module, as after `python`. */
  script: string;
  /** A program and its arguments, as in a shell; instead of a script. */
  command: string;
  /** One argument per line. */
  args: string;
  /** Whether a process is started for each GPU, or one for each node, which starts its ranks itself. */
  processes: "gpu" | "node";
  resume: ResumeDraft;
  /** One NAME=value per line. */
  env: string;
  /** Variables with the names of the secrets that they get. */
  secrets: { variable: string; secret: string }[];
  /** Single-line fields of the request, as texts by the API's names. */
  plain: Record<string, string>;
  /** Fields of a cloned request that the form does not show. They are sent unchanged. */
  rest: UnknownFields;
}

/** How a script is told to resume. */
export interface ResumeDraft {
  /** One argument per line. */
  args: string;
  /** One NAME=value per line. */
  env: string;
  /** It looks for its newest checkpoint itself. */
  itself: boolean;
}

export const NO_RESUME: ResumeDraft = { args: "", env: "", itself: false };

export interface UnknownFields {
  request: Record<string, unknown>;
  config: Record<string, unknown>;
  entrypoint: Record<string, unknown>;
}

export const EMPTY_DRAFT: Draft = {
  taskName: "",
  tags: "",
  what: "model",
  datasetId: "",
  datasetVersionId: "",
  modelId: "",
  launchMode: DEFAULT_LAUNCH_MODE,
  made: { template: "", count: "1", afterwards: "delete" },
  selected: [],
  capacity: null,
  projectId: "",
  preemptible: false,
  spareIds: [],
  master: "",
  framework: DEFAULT_FRAMEWORK,
  tuning: {},
  minNodes: "",
  maxNodes: "",
  masterPort: "",
  backend: "",
  runIn: "",
  python: "",
  hyperparameters: {},
  code: NO_CODE,
  script: "",
  command: "",
  args: "",
  processes: "gpu",
  resume: NO_RESUME,
  env: "",
  secrets: [],
  plain: {},
  rest: { request: {}, config: {}, entrypoint: {} },
};

/** Fields of the request, and of its `distributedConfig`, that the form shows. */
const SHOWN_FIELDS = [
  ...["taskName", "tags", "datasetId", "datasetVersionId", "modelId", "launchMode", "projectId", "preemptible"],
  ...["environmentIds", "distributedConfig", "newEnvironments", "spareEnvironmentIds", "code", "entrypoint"],
  ...["hyperparameters", "env", "secretEnv"],
  ...TEXT_FIELDS,
  ...CHOICE_FIELDS,
];
const SHOWN_CONFIG_FIELDS = [
  ...["enabled", "nodeIds", "select", "masterNode", "framework", "masterPort", "backend", "elastic"],
  ...["runIn", "python"],
  ...["strategy", "options"],
];

function omitFields(values: object | null | undefined, shown: string[]): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(values ?? {}).filter(([name, value]) => value != null && !shown.includes(name)),
  );
}

export const createsEnvironments = (draft: Draft) => draft.launchMode === NEW_ENVIRONMENTS_MODE;

/** Returns the number of nodes, as far as the form knows it. */
export const countNodes = (draft: Draft) =>
  createsEnvironments(draft) ? Number(draft.made.count) || 0 : draft.selected.length;

export function getTuning(draft: Draft): FrameworkSettings {
  return draft.tuning[draft.framework] ?? DEFAULT_SETTINGS;
}

/** Returns the change that sets fields of the chosen framework. */
export function updateTuning(draft: Draft, patch: Partial<FrameworkSettings>): Pick<Draft, "tuning"> {
  return { tuning: { ...draft.tuning, [draft.framework]: { ...getTuning(draft), ...patch } } };
}

/** Selects or deselects an environment. The master is the first selected one unless another was chosen. */
export function toggleEnvironment(draft: Draft, id: string): Draft {
  const selected = draft.selected.includes(id) ? draft.selected.filter((each) => each !== id) : [...draft.selected, id];
  return { ...draft, selected, master: selected.includes(draft.master) ? draft.master : (selected[0] ?? "") };
}

/** Applies `read` to the texts that are not blank. */
function mapNonEmpty<T>(fields: Record<string, string>, read: (text: string, name: string) => T): Record<string, T> {
  return Object.fromEntries(
    Object.entries(fields)
      .filter(([, text]) => text.trim() !== "")
      .map(([name, text]) => [name, read(text, name)]),
  );
}

function parseScalar(text: string): unknown {
  return text === "true" || text === "false" ? text === "true" : parseNumber(text);
}

const isEmpty = (object: object) => Object.keys(object).length === 0;

/**
 * Returns whether the user's own script is trained. It needs neither dataset nor model: empty ones are sent as null.
 */
export function usesOwnScript(draft: Draft): boolean {
  return draft.what === "script";
}

/** Returns the script, the module or the command that was typed. Of both, the server says what is wrong. */
function parseEntrypoint(draft: Draft): { script?: string; module?: string; command?: string[] } {
  const script = draft.script.trim();
  const command = splitWords(draft.command);
  const [, module] = /^-m\s+(.*)$/.exec(script) ?? [];
  return {
    ...(module !== undefined ? { module } : (script || command.length === 0) && { script }),
    ...(command.length > 0 && { command }),
  };
}

function parseResume({ args, env, itself }: ResumeDraft): object {
  const [words, variables] = [parseLines(args), parseVariables(env)];
  if (!itself && words.length === 0 && isEmpty(variables)) return {};
  return {
    resume: {
      ...(words.length > 0 && { args: words }),
      ...(!isEmpty(variables) && { env: variables }),
      ...(itself && { itself }),
    },
  };
}

export function parseHyperparameters(draft: Draft): Record<string, unknown> {
  return mapNonEmpty(draft.hyperparameters, parseScalar);
}

/**
 * Returns the request of a draft. Invalid numbers are sent as typed, so that the server says what is wrong with them.
 */
export function buildRequest(draft: Draft, frameworks: Framework[]): CreateRequest {
  const hyperparameters = parseHyperparameters(draft);
  const env = parseVariables(draft.env);
  const tags = parseTags(draft.tags);
  const secretEnv = Object.fromEntries(
    draft.secrets.filter(({ variable }) => variable.trim()).map(({ variable, secret }) => [variable.trim(), secret]),
  );
  const spares = createsEnvironments(draft) ? [] : draft.spareIds.filter((id) => !draft.selected.includes(id));
  const chosen = (id: string) => (usesOwnScript(draft) ? id || null : id);
  return {
    ...draft.rest.request,
    taskName: draft.taskName,
    ...(tags.length > 0 && { tags }),
    datasetId: chosen(draft.datasetId),
    datasetVersionId: chosen(draft.datasetVersionId),
    modelId: chosen(draft.modelId),
    launchMode: draft.launchMode,
    ...(draft.projectId && { projectId: draft.projectId }),
    ...(draft.preemptible && { preemptible: true }),
    ...buildNodeRequest(draft, frameworks),
    ...(createsEnvironments(draft) && buildNewEnvironments(draft)),
    ...(spares.length > 0 && { spareEnvironmentIds: spares }),
    ...(usesOwnScript(draft) && buildCodeRequest(draft.code, draft.master)),
    ...(usesOwnScript(draft) && {
      entrypoint: {
        ...draft.rest.entrypoint,
        ...parseEntrypoint(draft),
        args: parseLines(draft.args),
        ...(draft.processes === "node" && { processes: draft.processes }),
        ...parseResume(draft.resume),
      },
    }),
    ...(!isEmpty(hyperparameters) && { hyperparameters }),
    ...(!isEmpty(env) && { env }),
    ...(!isEmpty(secretEnv) && { secretEnv }),
    ...mapNonEmpty(draft.plain, parseTextField),
  };
}

/** Returns the tags of a text, each once. */
export function parseTags(text: string): string[] {
  return [...new Set(text.split(/[,，\n]/).map((tag) => tag.trim()))].filter(Boolean);
}

function parseTextField(text: string, name: string): unknown {
  const unit = getUnitSeconds(name);
  if (unit) return parseDuration(text, unit);
  return isNumber(REQUEST[name]) ? parseNumber(text) : text.trim();
}

const buildNewEnvironments = ({ made }: Draft) =>
  ({ newEnvironments: { ...made, count: parseNumber(made.count) } }) as Pick<CreateRequest, "newEnvironments">;

type NodeRequest = Pick<CreateRequest, "environmentIds" | "distributedConfig">;

/**
 * Returns the nodes and the distributed configuration. One environment with the default framework is sent as
 * `environmentIds` alone.
 */
function buildNodeRequest(draft: Draft, frameworks: Framework[]): NodeRequest {
  const { selected, framework, masterPort, backend, runIn, python, minNodes, maxNodes } = draft;
  const rules = getOptionRules(findFramework(frameworks, framework));
  const strategy = mapNonEmpty(getTuning(draft).strategy, parseNumber) as Record<string, number>;
  const options = mapNonEmpty(getTuning(draft).options, (text, name) => parseOption(text, rules[name]));
  const elastic =
    countNodes(draft) > 1 || draft.capacity
      ? (mapNonEmpty({ minNodes, maxNodes }, parseNumber) as { minNodes?: number })
      : {};
  const more = {
    ...draft.rest.config,
    ...(!isEmpty(elastic) && { elastic }),
    ...(mapNonEmpty({ masterPort }, parseNumber) as { masterPort?: number }),
    ...(backend && { backend }),
    ...(runIn && { runIn: runIn as "environment" | "beside" }),
    ...(python.trim() && { python: python.trim() }),
    ...(!isEmpty(strategy) && { strategy }),
    ...(!isEmpty(options) && { options }),
  };
  if (createsEnvironments(draft)) {
    const alone = countNodes(draft) <= 1 && framework === DEFAULT_FRAMEWORK && isEmpty(more);
    return alone ? {} : { distributedConfig: { enabled: true, framework, ...more } };
  }
  if (draft.capacity) {
    return { distributedConfig: { enabled: true, select: buildSelect(draft.capacity), framework, ...more } };
  }
  const isDefault = framework === DEFAULT_FRAMEWORK && isEmpty(more);
  if (selected.length <= 1 && isDefault) return { environmentIds: selected };
  return {
    distributedConfig: { enabled: true, nodeIds: selected, masterNode: draft.master, framework, ...more },
  };
}

/** Returns the priority class of a numeric priority. Other values are returned unchanged. */
function parsePriority(name: string, value: unknown): unknown {
  if (name !== "priority" || typeof value !== "number") return value;
  if (value === 0) return undefined;
  return value < 0 ? "low" : value < 100 ? "high" : "urgent";
}

/** Returns the form's value of `runIn`: `pod` is an old name of `beside`, and `auto` is empty. */
function parseRunIn(runIn: string | undefined): string {
  return runIn === "pod" ? "beside" : runIn === undefined || runIn === "auto" ? "" : runIn;
}

/** Formats a value as a person would type it. */
function formatField(name: string, value: unknown): unknown {
  const unit = getUnitSeconds(name);
  return unit && typeof value === "number" ? formatDurationInput(value, unit) : parsePriority(name, value);
}

function formatTexts(values: Record<string, unknown> = {}): Record<string, string> {
  return Object.fromEntries(
    Object.entries(values)
      .filter(([, value]) => value != null)
      .map(([name, value]) => [name, formatOption(value)]),
  );
}

function parseNewEnvironments(request: CreateRequest): Draft["made"] {
  const { template, count, afterwards, clusterId, zone } = request.newEnvironments ?? {};
  return {
    template: formatOption(template ?? EMPTY_DRAFT.made.template),
    count: formatOption(count ?? EMPTY_DRAFT.made.count),
    afterwards: formatOption(afterwards ?? EMPTY_DRAFT.made.afterwards),
    ...(clusterId && { clusterId }),
    ...(zone && { zone }),
  };
}

/** Fields of the capacity that are lists. */
const CAPACITY_LISTS = ["gpuTypes", "zones", "exclude"] as const;

/** Returns the draft with the field of this API name set; unchanged if the form has no such field. */
export function setDraftField(draft: Draft, field: string, to: string): Draft {
  const list = CAPACITY_LISTS.find((name) => field === `distributedConfig.select.${name}`);
  if (list) return draft.capacity ? { ...draft, capacity: { ...draft.capacity, [list]: to.split(", ") } } : draft;
  const [head = "", name] = field.split(".");
  if (head === "hyperparameters" && name) {
    return { ...draft, hyperparameters: { ...draft.hyperparameters, [name]: to } };
  }
  if (field === "distributedConfig.masterPort") return { ...draft, masterPort: to };
  if (field === "distributedConfig.runIn") return { ...draft, runIn: parseRunIn(to) };
  if (field === "preemptible") return { ...draft, preemptible: to === "true" };
  if (field === "entrypoint.resume.args") return { ...draft, resume: { ...NO_RESUME, args: to.replaceAll(" ", "\n") } };
  return [...TEXT_FIELDS, ...CHOICE_FIELDS].includes(field)
    ? { ...draft, plain: { ...draft.plain, [field]: to } }
    : draft;
}

/** Returns one NAME=value per line. */
export function formatVariables(variables: Record<string, string>): string {
  return Object.entries(variables)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");
}

/** Returns the draft that would send `request`. */
export function buildDraft(request: CreateRequest): Draft {
  const config = request.distributedConfig?.enabled === false ? null : request.distributedConfig;
  const selected = config?.nodeIds?.length ? config.nodeIds : (request.environmentIds ?? []);
  const framework = config?.framework ?? DEFAULT_FRAMEWORK;
  const tuning: FrameworkSettings = { strategy: formatTexts(config?.strategy), options: formatTexts(config?.options) };
  const text = (value: number | string | null | undefined) => (value == null ? "" : String(value));
  return {
    taskName: text(request.taskName),
    tags: (request.tags ?? []).join(", "),
    what: request.entrypoint ? "script" : "model",
    datasetId: text(request.datasetId),
    datasetVersionId: text(request.datasetVersionId),
    modelId: text(request.modelId),
    launchMode: request.launchMode ?? DEFAULT_LAUNCH_MODE,
    made: parseNewEnvironments(request),
    selected,
    capacity: config?.select ? parseSelect(config.select) : null,
    projectId: text(request.projectId),
    preemptible: request.preemptible ?? false,
    spareIds: request.spareEnvironmentIds ?? [],
    master: config?.masterNode ?? selected[0] ?? "",
    framework,
    tuning: isEmpty(tuning.strategy) && isEmpty(tuning.options) ? {} : { [framework]: tuning },
    minNodes: text(config?.elastic?.minNodes),
    maxNodes: text(config?.elastic?.maxNodes),
    masterPort: text(config?.masterPort),
    backend: text(config?.backend),
    runIn: parseRunIn(config?.runIn),
    python: text(config?.python),
    hyperparameters: formatTexts(request.hyperparameters),
    code: parseCodeRequest(request.code, config?.masterNode ?? selected[0] ?? ""),
    script: request.entrypoint?.module ? `-m ${request.entrypoint.module}` : text(request.entrypoint?.script),
    command: joinWords(request.entrypoint?.command ?? []),
    args: (request.entrypoint?.args ?? []).join("\n"),
    processes: request.entrypoint?.processes ?? "gpu",
    resume: {
      args: (request.entrypoint?.resume?.args ?? []).join("\n"),
      env: formatVariables(request.entrypoint?.resume?.env ?? {}),
      itself: request.entrypoint?.resume?.itself ?? false,
    },
    env: formatVariables(request.env ?? {}),
    secrets: Object.entries(request.secretEnv ?? {}).map(([variable, secret]) => ({ variable, secret })),
    plain: formatTexts(
      Object.fromEntries(
        [...TEXT_FIELDS, ...CHOICE_FIELDS].map((name) => [
          name,
          formatField(name, request[name as keyof CreateRequest]),
        ]),
      ),
    ),
    // the form shows code only with a script
    rest: {
      request: omitFields(request, request.entrypoint ? SHOWN_FIELDS : SHOWN_FIELDS.filter((name) => name !== "code")),
      config: omitFields(config, SHOWN_CONFIG_FIELDS),
      entrypoint: omitFields(request.entrypoint, ["script", "module", "command", "args", "processes", "resume"]),
    },
  };
}
