import { expect, test } from "vitest";
import { en } from "./en";
import { zh } from "./zh";

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
