import { expect, test } from "vitest";
import { listImports, resolveImport, SOURCES } from "@/test/imports";
import { zh } from "./pages/zh";

const USE = new RegExp(`["\`](?:${Object.keys(zh).join("|")})\\.[a-z]`, "i");

/** Returns the module and all that it imports statically. */
function closure(path: string, seen = new Set<string>()): Set<string> {
  if (seen.has(path)) return seen;
  seen.add(path);
  for (const each of listImports(path, false)) closure(each, seen);
  return seen;
}

/** Returns the modules that use texts of pages, among a module and all that it imports. */
const listUses = (path: string) => [...closure(path)].filter((each) => USE.test(SOURCES.get(each) ?? ""));

const LAZY = [...SOURCES].flatMap(([from, source]) =>
  [...source.matchAll(/(withPageTexts\()?import\("([^"]+)"\)/g)].flatMap(([, loads, specifier = ""]) => {
    const path = resolveImport(from, specifier);
    return path && !path.startsWith("i18n/") ? [{ path, loads: loads !== undefined }] : [];
  }),
);

test("a first visit uses no text that loads later", () => {
  expect(closure("main.tsx").size).toBeGreaterThan(30);
  expect(listUses("main.tsx")).toEqual([]);
});

test("what is imported lazily loads the texts of pages where it uses one, and only there", () => {
  expect(LAZY.length).toBeGreaterThan(30);
  expect(LAZY.filter(({ path, loads }) => loads !== listUses(path).length > 0)).toEqual([]);
});
