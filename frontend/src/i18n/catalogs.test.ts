import { expect, test } from "vitest";
import { en } from "./en";
import { zh } from "./zh";
import { known } from "./index";

interface Catalog {
  [key: string]: string | Catalog;
}

function placeholders(catalog: Catalog, path = ""): Record<string, string[]> {
  return Object.fromEntries(
    Object.entries(catalog).flatMap(([key, value]) =>
      typeof value === "string"
        ? [[path + key, [...value.matchAll(/{{\w+}}/g)].map(([name]) => name).sort()]]
        : Object.entries(placeholders(value, `${path}${key}.`)),
    ),
  );
}

test("both languages say the same things with the same blanks", () => {
  expect(placeholders(en)).toEqual(placeholders(zh));
});

test("a tag leads to its language, and one that there is none of to the default", () => {
  expect(["en", "en-GB", "zh-CN", "xx", "", null, undefined].map(known)).toEqual([
    "en",
    "en",
    "zh",
    "zh",
    "zh",
    "zh",
    "zh",
  ]);
});
