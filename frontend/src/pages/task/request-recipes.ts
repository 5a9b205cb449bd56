import { DISTRIBUTED_CONFIG, REQUEST, type RequestField } from "@/api/request-schema";
import type { CreateRequest, RenderedFile } from "@/api/types";
import { quoteForShell } from "@/lib/shell";

/** The request of a task as what one pastes into a terminal or keeps in a repository. */
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
  ];
  const lines = flags
    .filter(([, value]) => value != null && value !== "")
    .map(([flag, value]) => (value === true ? flag : `${flag} ${quoteForShell(String(value))}`));
  if (entrypoint?.args?.length) lines.push(`-- ${entrypoint.args.map(quoteForShell).join(" ")}`);
  return `fermi submit \\\n  ${lines.join(" \\\n  ")}\n`;
}

/** Two numbers in one word, `2:4`; the first is 1 where only the second was given. */
function formatRangeFlag([low = "", high = ""]: string[], value: unknown): string {
  const given = value as Record<string, number | null | undefined>;
  return `${given[low] ?? 1}${given[high] == null ? "" : `:${given[high]}`}`;
}

/** Whether the command takes the entries of a table as they are typed. */
function isText({ additionalProperties: inner }: RequestField) {
  return typeof inner === "object" && inner.type === "string";
}

/** Left out, the command would take the only one there is. */
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

/** The command reads values as JSON where they can be read so: a text that looks like something else is quoted. */
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

/** YAML in blocks; what could be read as something else is quoted as in JSON, which is YAML too. */
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
