import { dirname, join, normalize } from "node:path/posix";

/** The source of every module of the console except tests, by its path in `src/`. */
export const SOURCES = new Map(
  Object.entries(
    import.meta.glob<string>(["../**/*.{ts,tsx}", "!../**/*.test.*", "!../**/*.d.ts", "!./**"], {
      query: "?raw",
      import: "default",
      eager: true,
    }),
  ).map(([path, source]) => [normalize(join("test", path)), source]),
);

/** Returns the path of the module that an import in `from` names, if it is the console's. */
export function resolveImport(from: string, specifier: string): string | undefined {
  const path = specifier.startsWith("@/") ? specifier.slice(2) : normalize(join(dirname(from), specifier));
  return ["", ".ts", ".tsx", "/index.ts", "/index.tsx"].map((end) => path + end).find((each) => SOURCES.has(each));
}

/** Returns the paths of the modules that a module imports statically; imports of types only if `withTypes`. */
export function listImports(path: string, withTypes: boolean): string[] {
  const source = SOURCES.get(path) ?? "";
  const statements = source.matchAll(/^(?:import|export)\s(type\s)?[^;]*?from "([^"]+)";/gms);
  return [...statements].flatMap(([, type, specifier = ""]) =>
    type && !withTypes ? [] : (resolveImport(path, specifier) ?? []),
  );
}
