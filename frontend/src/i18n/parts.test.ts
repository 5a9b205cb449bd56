import { dirname, join, normalize } from "node:path/posix";
import { expect, test } from "vitest";

/** Every module's source by its path under src/. */
const SOURCES = new Map(
  Object.entries(
    import.meta.glob<string>(["../**/*.{ts,tsx}", "!../**/*.test.*", "!../test/**", "!./**"], {
      query: "?raw",
      import: "default",
      eager: true,
    }),
  ).map(([path, source]) => [normalize(join("i18n", path)), source]),
);
const PARTS = Object.keys(import.meta.glob("./parts/*.zh.ts")).map((path) =>
  path.slice("./parts/".length, -".zh.ts".length),
);

function moduleOf(from: string, named: string): string | undefined {
  const path = named.startsWith("@/") ? named.slice(2) : normalize(join(dirname(from), named));
  return ["", ".ts", ".tsx", "/index.ts", "/index.tsx"].map((end) => path + end).find((each) => SOURCES.has(each));
}

function imports(path: string): string[] {
  const source = SOURCES.get(path) ?? "";
  const named = [...source.matchAll(/^(?:import|export)\s(?!type\s)[^;]*?from "([^"]+)";/gms)].map(
    ([, name = ""]) => name,
  );
  return named.flatMap((name) => moduleOf(path, name) ?? []);
}

/** The module and all that comes with it. */
function closure(path: string, seen = new Set<string>()): Set<string> {
  if (seen.has(path)) return seen;
  seen.add(path);
  for (const each of imports(path)) closure(each, seen);
  return seen;
}

/** The parts of which something is said in a module. */
const said = (path: string) =>
  PARTS.filter((part) => new RegExp(`["\`]${part}\\.[a-z]`, "i").test(SOURCES.get(path) ?? ""));

interface Lazy {
  where: string;
  module: string;
  loads: string[];
}

const LAZY: Lazy[] = [...SOURCES].flatMap(([where, source]) =>
  [...source.matchAll(/import\("([^"]+)"\)((?:,\s*"\w+")*)/g)].flatMap(([, name = "", parts = ""]) => {
    const module = moduleOf(where, name);
    return module ? [{ where, module, loads: [...parts.matchAll(/\w+/g)].map(([part]) => part) }] : [];
  }),
);

const unsaid = (root: string, loads: string[]) =>
  [...closure(root)].flatMap((path) =>
    said(path)
      .filter((part) => !loads.includes(part))
      .map((part) => `${path} says ${part}.…, which does not come with ${root}`),
  );

test("what every page brings along says nothing of a part", () => {
  expect(closure("main.tsx").size).toBeGreaterThan(30);
  expect(unsaid("main.tsx", [])).toEqual([]);
});

test("whatever is loaded later comes with the parts that it says", () => {
  expect(LAZY.length).toBeGreaterThan(30);
  expect(LAZY.filter(({ loads }) => loads.length > 0).length).toBeGreaterThan(5);
  expect(LAZY.flatMap(({ module, loads }) => unsaid(module, loads))).toEqual([]);
});

test("no part is loaded for nothing", () => {
  const needless = LAZY.flatMap(({ module, loads }) => {
    const needed = new Set([...closure(module)].flatMap(said));
    return loads.filter((part) => !needed.has(part)).map((part) => `${module}: ${part}`);
  });
  expect(needless).toEqual([]);
});
