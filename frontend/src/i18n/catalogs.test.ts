import i18next from "i18next";
import { expect, test } from "vitest";
import { en } from "./en";
import { en as enPages } from "./pages/en";
import { zh as zhPages } from "./pages/zh";
import { zh } from "./zh";
import { matchLanguage, setLanguage } from "./index";

interface Catalog {
  [key: string]: string | Catalog;
}

const PLURAL = /_(zero|one|two|few|many|other)$/;

function textsOf(catalog: Catalog, path = ""): [path: string, text: string][] {
  return Object.entries(catalog).flatMap(([key, value]) =>
    typeof value === "string" ? [[path + key, value] as [string, string]] : textsOf(value, `${path}${key}.`),
  );
}

function blanksOf(text: string): string[] {
  return [...text.matchAll(/{{(\w+)/g)].map(([, name = ""]) => name).sort();
}

/** By its path, where the forms of one text are one. */
function placeholders(catalog: Catalog): Record<string, string[]> {
  return Object.fromEntries(textsOf(catalog).map(([path, text]) => [path.replace(PLURAL, ""), blanksOf(text)]));
}

test("both languages say the same things with the same blanks", () => {
  expect(placeholders(en as Catalog)).toEqual(placeholders(zh));
  expect(placeholders(enPages as Catalog)).toEqual(placeholders(zhPages));
});

test("a text with a plural has both forms, and their number and blanks", () => {
  const texts = new Map(textsOf({ ...(en as Catalog), ...(enPages as Catalog) }));
  const plural = [...texts.keys()].filter((path) => PLURAL.test(path));
  expect(plural.length).toBeGreaterThan(50);
  const wrong = plural.filter((path) => {
    const [one, other] = ["_one", "_other"].map((form) => texts.get(path.replace(PLURAL, form)));
    return one === undefined || other === undefined || blanksOf(one).join() !== blanksOf(other).join();
  });
  expect(wrong).toEqual([]);
  expect(textsOf({ ...zh, ...zhPages }).filter(([path]) => PLURAL.test(path))).toEqual([]);
});

test("one is said in the singular, in English", async () => {
  await setLanguage("en");
  expect([1, 2, 1234].map((count) => i18next.t("counted.tasks", { count }))).toEqual([
    "1 task",
    "2 tasks",
    "1,234 tasks",
  ]);
  expect([1, 3].map((count) => i18next.t("tasks.stopTitle", { count }))).toEqual(["Stop 1 task?", "Stop 3 tasks?"]);
  await setLanguage("zh");
  expect([1, 2].map((count) => i18next.t("counted.tasks", { count }))).toEqual(["1 个任务", "2 个任务"]);
});

/** Attributes that identity providers and directories show by these names. */
const WRITTEN_SO = new Set(["externalId", "firstName", "lastName", "memberOf", "userName"]);

test("no text names a field as the API does", () => {
  const all = [...textsOf({ ...(en as Catalog), ...(enPages as Catalog) }), ...textsOf({ ...zh, ...zhPages })];
  const found = all.flatMap(([path, text]) =>
    [...text.replaceAll(/{{.*?}}/g, "").matchAll(/\b[a-z]+[A-Z]\w*/g)]
      .filter(([name]) => !WRITTEN_SO.has(name))
      .map(([name]) => `${path}: ${name}`),
  );
  expect(found).toEqual([]);
});

test("texts of pages replace no text of a first visit", () => {
  expect(Object.keys(zhPages).filter((name) => name in zh)).toEqual([]);
});

test("a tag leads to its language, and one that there is none of to the default", () => {
  expect(["en", "en-GB", "zh-CN", "xx", "", null, undefined].map((tag) => matchLanguage(tag))).toEqual([
    "en",
    "en",
    "zh",
    "zh",
    "zh",
    "zh",
    "zh",
  ]);
});
