import { afterEach, expect, test, vi } from "vitest";
import { matchLanguage, getLanguage, startLanguage } from ".";

afterEach(() => vi.unstubAllGlobals());

test.each([
  [["en-GB", "zh-CN"], "en"],
  [["de-DE", "EN-us"], "en"],
  [["zh-TW"], "zh"],
  [["de-DE"], "zh"],
  [[], "zh"],
])("who has chosen none reads the first of the browser's languages that there is: %s", async (languages, shown) => {
  localStorage.removeItem("fermi.language");
  vi.stubGlobal("navigator", { languages });
  await startLanguage();
  expect(getLanguage()).toBe(shown);
  expect(document.cookie).toContain(`django_language=${shown}`);
  expect(document.cookie).toContain(`fermi_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}`);
  expect(localStorage.getItem("fermi.language"), "a guess is no choice").toBeNull();
});

test("a choice comes before what the browser asks for, unless there is no such language", () => {
  expect(matchLanguage("zh", "en-GB")).toBe("zh");
  expect(matchLanguage("xx", "en-GB")).toBe("en");
});
