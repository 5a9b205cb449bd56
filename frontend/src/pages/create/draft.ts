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
import { type CapacityRequest, parseSelect, buildSelect } from "./capacity";
import { type CodeDraft, parseCodeRequest, buildCodeRequest, NO_CODE } from "./code-draft";
import { findFramework, getOptionRules, formatOption, parseOption } from "./options";

export const DEFAULT_FRAMEWORK = DISTRIBUTED_CONFIG.framework?.default as string;
/** Environments are made for the task. */
export const NEW_ENVIRONMENTS_MODE = "new";
export const DEFAULT_LAUNCH_MODE = REQUEST.launchMode?.default as string;

/** Texts of the fields that belong to one framework, by the API's names. */
export interface FrameworkSettings {
  strategy: Record<string, string>;
  options: Record<string, string>;
}

const DEFAULT_SETTINGS: FrameworkSettings = { strategy: {}, options: {} };

/** The form as it stands: text where a person types text. */
export interface Draft {
  taskName: string;
  /** What is trained: a model of the platform by its own trainer, or a script of one's own. */
  what: "model" | "script";
  datasetId: string;
  datasetVersionId: string;
  modelId: string;
  launchMode: string;
  /** With `NEW`: what is made for the task, and what becomes of it. */
  made: { template: string; count: string; afterwards: string; clusterId?: string; zone?: string };
  /** In the order of ticking. */
  selected: string[];
  /** What is asked for in place of the ticked ones; null: those are meant. */
  capacity: CapacityRequest | null;
  /** Whose task it is; empty = the project of its environments. */
  projectId: string;
  /** Whether it gives way to a higher class. */
  preemptible: boolean;
  /** Environments that take the place of a lost one, in the order of ticking. */
  spareIds: string[];
  /** Empty = none is selected. */
  master: string;
  framework: string;
  /** By framework, so that trying another and coming back loses nothing. */
  tuning: Record<string, FrameworkSettings>;
  /** Of an elastic task: the fewest and the most nodes; both empty = it keeps its nodes. */
  minNodes: string;
  maxNodes: string;
  masterPort: string;
  backend: string;
  /** Where the ranks run; empty = the platform decides. */
  runIn: string;
  /** The interpreter inside the environments; empty = the notebook's own. */
  python: string;
  hyperparameters: Record<string, string>;
  code: CodeDraft;
  /** A path, or `-m` and a module, as after `python`. */
  script: string;
  /** One argument a line. */
  args: string;
  /** One NAME=value a line. */
  env: string;
  /** Variables, each with the name of the secret whose value it gets. */
  secrets: { variable: string; secret: string }[];
  /** Texts of the request's single values, by the API's names. */
  plain: Record<string, string>;
  /** What a request that was cloned says beside what the form shows. It is sent as it is. */
  rest: UnknownFields;
}

export interface UnknownFields {
  request: Record<string, unknown>;
  config: Record<string, unknown>;
}

export const EMPTY_DRAFT: Draft = {
  taskName: "",
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
  args: "",
  env: "",
  secrets: [],
  plain: {},
  rest: { request: {}, config: {} },
};

/** What of a request, and of its `distributedConfig`, the form shows. */
const SHOWN_FIELDS = [
  ...["taskName", "datasetId", "datasetVersionId", "modelId", "launchMode", "projectId", "preemptible"],
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

/** How many environments it is to run on, as far as the form knows. */
export const countNodes = (draft: Draft) =>
  createsEnvironments(draft) ? Number(draft.made.count) || 0 : draft.selected.length;

export function getTuning(draft: Draft): FrameworkSettings {
  return draft.tuning[draft.framework] ?? DEFAULT_SETTINGS;
}

/** The change that sets fields of the chosen framework. */
export function updateTuning(draft: Draft, patch: Partial<FrameworkSettings>): Pick<Draft, "tuning"> {
  return { tuning: { ...draft.tuning, [draft.framework]: { ...getTuning(draft), ...patch } } };
}

/** The master is the first that was ticked, until it is unticked or another is chosen by hand. */
export function toggleEnvironment(draft: Draft, id: string): Draft {
  const selected = draft.selected.includes(id) ? draft.selected.filter((each) => each !== id) : [...draft.selected, id];
  return { ...draft, selected, master: selected.includes(draft.master) ? draft.master : (selected[0] ?? "") };
}

/** Entries with something in them, each made of its text by `read`. */
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

/** A script of one's own may do without a dataset and a model; what is left empty is null then. */
export function usesOwnScript(draft: Draft): boolean {
  return draft.what === "script";
}

/** The script or the module that is typed. */
function parseEntrypoint(draft: Draft): { script: string } | { module: string } {
  const [, module] = /^-m\s+(.*)$/.exec(draft.script.trim()) ?? [];
  return module === undefined ? { script: draft.script.trim() } : { module };
}

export function parseHyperparameters(draft: Draft): Record<string, unknown> {
  return mapNonEmpty(draft.hyperparameters, parseScalar);
}

/** What is not a number is sent as it was typed, so that the server's own words say what is wrong with it. */
export function buildRequest(draft: Draft, frameworks: Framework[]): CreateRequest {
  const hyperparameters = parseHyperparameters(draft);
  const env = parseVariables(draft.env);
  const secretEnv = Object.fromEntries(
    draft.secrets.filter(({ variable }) => variable.trim()).map(({ variable, secret }) => [variable.trim(), secret]),
  );
  const spares = createsEnvironments(draft) ? [] : draft.spareIds.filter((id) => !draft.selected.includes(id));
  const chosen = (id: string) => (usesOwnScript(draft) ? id || null : id);
  return {
    ...draft.rest.request,
    taskName: draft.taskName,
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
    ...(usesOwnScript(draft) && { entrypoint: { ...parseEntrypoint(draft), args: parseLines(draft.args) } }),
    ...(!isEmpty(hyperparameters) && { hyperparameters }),
    ...(!isEmpty(env) && { env }),
    ...(!isEmpty(secretEnv) && { secretEnv }),
    ...mapNonEmpty(draft.plain, parseTextField),
  };
}

function parseTextField(text: string, name: string): unknown {
  const unit = getUnitSeconds(name);
  if (unit) return parseDuration(text, unit);
  return isNumber(REQUEST[name]) ? parseNumber(text) : text.trim();
}

const buildNewEnvironments = ({ made }: Draft) =>
  ({ newEnvironments: { ...made, count: parseNumber(made.count) } }) as Pick<CreateRequest, "newEnvironments">;

type NodeRequest = Pick<CreateRequest, "environmentIds" | "distributedConfig">;

/** One environment under the default framework is named as the requirement names it: by itself. */
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

/** A priority that was given as a number, as the class that it is of; nothing else changes. */
function parsePriority(name: string, value: unknown): unknown {
  if (name !== "priority" || typeof value !== "number") return value;
  if (value === 0) return undefined;
  return value < 0 ? "low" : value < 100 ? "high" : "urgent";
}

/** `pod` is another name for beside, and the platform's own choice is what the form has empty. */
function parseRunIn(runIn: string | undefined): string {
  return runIn === "pod" ? "beside" : runIn === undefined || runIn === "auto" ? "" : runIn;
}

/** As a person would type or choose it. */
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

/** Fields of capacity that list names. */
const CAPACITY_LISTS = ["gpuTypes", "zones", "exclude"] as const;

/** The form with a field, by the API's name, set to the text that the platform proposes; as it is if it has none such. */
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
  return [...TEXT_FIELDS, ...CHOICE_FIELDS].includes(field)
    ? { ...draft, plain: { ...draft.plain, [field]: to } }
    : draft;
}

/** The form that would send `request`. */
export function buildDraft(request: CreateRequest): Draft {
  const config = request.distributedConfig?.enabled === false ? null : request.distributedConfig;
  const selected = config?.nodeIds?.length ? config.nodeIds : (request.environmentIds ?? []);
  const framework = config?.framework ?? DEFAULT_FRAMEWORK;
  const tuning: FrameworkSettings = { strategy: formatTexts(config?.strategy), options: formatTexts(config?.options) };
  const text = (value: number | string | null | undefined) => (value == null ? "" : String(value));
  return {
    taskName: text(request.taskName),
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
    args: (request.entrypoint?.args ?? []).join("\n"),
    env: Object.entries(request.env ?? {})
      .map(([name, value]) => `${name}=${value}`)
      .join("\n"),
    secrets: Object.entries(request.secretEnv ?? {}).map(([variable, secret]) => ({ variable, secret })),
    plain: formatTexts(
      Object.fromEntries(
        [...TEXT_FIELDS, ...CHOICE_FIELDS].map((name) => [
          name,
          formatField(name, request[name as keyof CreateRequest]),
        ]),
      ),
    ),
    // the form shows code beside a script alone
    rest: {
      request: omitFields(request, request.entrypoint ? SHOWN_FIELDS : SHOWN_FIELDS.filter((name) => name !== "code")),
      config: omitFields(config, SHOWN_CONFIG_FIELDS),
    },
  };
}
