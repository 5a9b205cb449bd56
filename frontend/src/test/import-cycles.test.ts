import { expect, test } from "vitest";
import { listImports, SOURCES } from "./imports";

test("no module imports itself through others, not even for a type", () => {
  const cycles: string[] = [];
  const done = new Set<string>();
  const visit = (path: string, importers: string[]) => {
    if (importers.includes(path)) cycles.push([...importers.slice(importers.indexOf(path)), path].join(" > "));
    if (importers.includes(path) || done.has(path)) return;
    for (const next of listImports(path, true)) visit(next, [...importers, path]);
    done.add(path);
  };
  for (const path of SOURCES.keys()) visit(path, []);
  expect(SOURCES.size).toBeGreaterThan(300);
  expect(cycles).toEqual([]);
});
