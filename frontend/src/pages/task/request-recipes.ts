import { DISTRIBUTED_CONFIG, REQUEST, type RequestField } from "@/api/request-schema";
import type { CreateRequest, RenderedFile } from "@/api/types";
import { quoteForShell } from "@/lib/shell";

/** Returns a task's request as commands and YAML. */
export function buildRecipes(request: CreateRequest, origin: string): RenderedFile[] {
  return [
    { name: "fermi.sh", content: formatCommand(request) },
    { name: "task.yaml", content: `# fermi submit -f task.yaml\n${formatYaml(request)}\n` },
    { name: "curl.sh", content: formatCurl(request, origin) },
  ];
}

export function formatCommand(request: CreateRequest): string {
  const { distributedConfig: config, entrypoint } = request;
  const nodes = config?.nodeIds ?? request.environmentIds ?? [];
  const pairs = (flag: string, values: object, rule: RequestField): [string, unknown][] =>
    Object.entries(values).map(([name, value]) => [
      flag,
      `${name}=${isText(rule) ? String(value) : formatLiteral(value)}`,
    ]);
  const declared = (fields: Record<string, RequestField>, values: object): [string, unknown][] =>
    Object.entries(fields).flatMap(([name, rule]) => {
      const flag = rule["x-flag"]?.name;
      const value = (values as Record<string, unknown>)[name];
      if (!flag) return [];
      if (typeof value === "boolean") return value ? [[flag, true]] : [];
      if (rule["x-flag"]?.range) return value ? [[flag, formatRangeFlag(rule["x-flag"].range, value)]] : [];
      if (Array.isArray(value)) return value.map((one): [string, unknown] => [flag, one]);
      return typeof value === "object" && value ? pairs(flag, value, rule) : [[flag, value]];
    });
  const { taskName, ...rest } = request;
  const flags: [string, unknown][] = [
    ["--name", taskName],
    ["--dataset", formatOptional([request.datasetId, request.datasetVersionId].filter(Boolean).join(":"), entrypoint)],
    ["--model", formatOptional(request.modelId, entrypoint)],
    ...nodes.map((node): [string, unknown] => ["--env", node]),
    ...(request.spareEnvironmentIds ?? []).map((spare): [string, unknown] => ["--spare", spare]),
    ["--master", config?.masterNode],
    ["--project", request.projectId],
    ...declared(DISTRIBUTED_CONFIG, config ?? {}),
    ...declared(REQUEST, rest),
    ["--script", entrypoint?.script],
    ["--module", entrypoint?.module],
    ["--processes", entrypoint?.processes === "node" ? "node" : undefined],
    ["--command", entrypoint?.command?.length ? true : undefined],
  ];
  const lines = flags
    .filter(([, value]) => value != null && value !== "")
    .map(([flag, value]) => (value === true ? flag : `${flag} ${quoteForShell(String(value))}`));
  const words = [...(entrypoint?.command ?? []), ...(entrypoint?.args ?? [])];
  if (words.length) lines.push(`-- ${words.map(quoteForShell).join(" ")}`);
  return `fermi submit \\\n  ${lines.join(" \\\n  ")}\n`;
}

/** Formats two numbers as one word: `2:4`. A missing first one is 1. */
function formatRangeFlag([low = "", high = ""]: string[], value: unknown): string {
  const given = value as Record<string, number | null | undefined>;
  return `${given[low] ?? 1}${given[high] == null ? "" : `:${given[high]}`}`;
}

/** Returns whether the command takes the entries of a table as texts. */
function isText({ additionalProperties: inner }: RequestField) {
  return typeof inner === "object" && inner.type === "string";
}

/** An omitted option would make the command choose the only one there is, so none is given explicitly. */
function formatOptional(chosen: string | null | undefined, entrypoint: CreateRequest["entrypoint"]) {
  return chosen || (entrypoint ? "none" : chosen);
}

function formatCurl(request: CreateRequest, origin: string): string {
  return `curl -s ${quoteForShell(`${origin}/api/v1/training-tasks`)} \\
  -H "Authorization: Bearer $FERMI_TOKEN" \\
  -H "Content-Type: application/json" \\
  --data-binary @- <<'END'
${JSON.stringify(request, null, 2)}
END
`;
}

/** Quotes a text that the command would read as another JSON value. */
function formatLiteral(value: unknown): string {
  return typeof value === "string" && !isJson(value) ? value : JSON.stringify(value);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const PLAIN = /^[A-Za-z_\p{Script=Han}/][\p{L}\p{N}_./-]*(?: [\p{L}\p{N}_./-]+)*$/u;
const RESERVED = /^(?:true|false|null|yes|no|on|off|y|n)$/i;

/** Formats YAML in block style. Texts that could be read as another type are quoted as in JSON. */
export function formatYaml(value: unknown, indent = ""): string {
  if (Array.isArray(value) && value.length > 0) {
    return value.map((item) => `${indent}- ${formatYaml(item, `${indent}  `).trimStart()}`).join("\n");
  }
  if (typeof value === "object" && value !== null && Object.keys(value).length > 0) {
    return Object.entries(value)
      .filter(([, inner]) => inner !== undefined)
      .map(([key, inner]) => `${indent}${formatScalar(key)}:${formatNested(inner, indent)}`)
      .join("\n");
  }
  return formatScalar(value);
}

function formatNested(value: unknown, indent: string): string {
  const block = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  return block ? `\n${formatYaml(value, `${indent}  `)}` : ` ${formatScalar(value)}`;
}

function formatScalar(value: unknown): string {
  const plain = typeof value === "string" && PLAIN.test(value) && !RESERVED.test(value);
  return plain ? value : JSON.stringify(value);
}
