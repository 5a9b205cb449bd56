import i18next from "i18next";
import { expect, test } from "vitest";
import { setLanguage } from "@/i18n";
import figures from "../../../tests/shared/figures.json";
import { bytes, count, duration, figure } from "./format";

const DAY = 86_400;

test("a duration is told in its two largest units", async () => {
  expect(duration(i18next.t, 5 * DAY + 3 * 3600 + 59)).toBe("5天3小时");
  expect(duration(i18next.t, 12 * 3600)).toBe("12小时");
  expect(duration(i18next.t, 0.4)).toBe("0秒");
  await setLanguage("en");
  expect(duration(i18next.t, 200)).toBe("3m 20s");
});

test("a duration never runs backwards, whatever the clocks say", () => {
  expect(duration(i18next.t, -5)).toBe("0秒");
});

test("a figure keeps few digits at every size", () => {
  expect(figure(2.314_567)).toBe("2.3146");
  expect(figure(51_234.56)).toBe("51,235");
  expect(figure(0.000_03)).toBe("3.0e-5");
  expect(figure(0)).toBe("0");
});

test("counts and sizes are told as the platform tells them", () => {
  expect(figures.counts.map(([value]) => [value, count(value as number)])).toEqual(figures.counts);
  expect(figures.sizes.map(([value]) => [value, bytes(value as number)])).toEqual(figures.sizes);
});
