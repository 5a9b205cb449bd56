/** What a token's scopes may be, as the API has them; `write` contains `read`. */
const VERBS = {
  account: ["read", "write"],
  agents: ["read", "write"],
  audit: ["read"],
  clusters: ["read", "write"],
  code: ["read", "write"],
  data: ["read", "write"],
  environments: ["read", "write", "open"],
  files: ["read", "write"],
  identity: ["read", "write"],
  notices: ["read", "write"],
  outputs: ["read"],
  people: ["read", "write"],
  projects: ["read", "write"],
  reservations: ["read", "write"],
  runs: ["read", "write"],
  schedules: ["read", "write"],
  secrets: ["read", "write"],
  sweeps: ["read", "write"],
  tasks: ["read", "write"],
  templates: ["read", "write"],
  tensorboards: ["read", "write"],
  tokens: ["read", "write"],
  tracking: ["write"],
  usage: ["read", "write"],
  workers: ["read", "write"],
} as const;

export type Resource = keyof typeof VERBS;
export type Verb = (typeof VERBS)[Resource][number];

export const RESOURCES = Object.entries(VERBS) as [Resource, readonly Verb[]][];
export const SCOPES = RESOURCES.flatMap(([resource, verbs]) => verbs.map((verb) => `${resource}:${verb}`));

export const PRESETS = {
  readOnly: SCOPES.filter((scope) => scope.endsWith(":read")),
  pipeline: ["tasks:write", "runs:read", "outputs:read", "code:write", "data:read", "environments:read"],
  notebook: ["tasks:read", "runs:read", "outputs:read"],
};
export type Preset = keyof typeof PRESETS;

/** The preset that has exactly these scopes. */
export function findPreset(scopes: readonly string[]): Preset | undefined {
  return (Object.keys(PRESETS) as Preset[]).find(
    (preset) => PRESETS[preset].length === scopes.length && PRESETS[preset].every((scope) => scopes.includes(scope)),
  );
}

/** The scopes after one is checked or not: of one resource `write` and `read` are not both listed. */
export function toggleScope(scopes: readonly string[], scope: string, checked: boolean): string[] {
  const [resource = "", verb] = scope.split(":");
  const others = scopes.filter((each) => each !== scope);
  if (!checked) return others;
  return [...(verb === "write" ? others.filter((each) => each !== `${resource}:read`) : others), scope];
}
