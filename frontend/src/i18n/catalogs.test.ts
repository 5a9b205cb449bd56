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

const parts = (language: string) =>
  Object.fromEntries(
    Object.entries(import.meta.glob<{ default: Catalog }>("./parts/*.??.ts", { eager: true }))
      .filter(([path]) => path.endsWith(`.${language}.ts`))
      .map(([path, file]) => [path.split("/").at(-1)?.split(".")[0] ?? "", file.default]),
  );

test("both languages say the same things with the same blanks", () => {
  expect(placeholders(en)).toEqual(placeholders(zh));
  expect(placeholders(parts("en"))).toEqual(placeholders(parts("zh")));
  expect(Object.keys(parts("zh"))).not.toEqual([]);
});

test("no part hides what every page may say", () => {
  expect(Object.keys(parts("zh")).filter((name) => name in zh)).toEqual([]);
});

test("a tag leads to its language, and one that there is none of to the default", () => {
  expect(["en", "en-GB", "zh-CN", "xx", "", null, undefined].map((tag) => known(tag))).toEqual([
    "en",
    "en",
    "zh",
    "zh",
    "zh",
    "zh",
    "zh",
  ]);
});
