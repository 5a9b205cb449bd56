import i18next from "i18next";
import { expect, test } from "vitest";
import { setLanguage } from "@/i18n";
import figures from "../../../tests/shared/figures.json";
import { formatBytes, formatCount, formatDuration, formatNumber, formatGpuTime } from "./format";

const DAY = 86_400;

test("a duration is told in its two largest units", async () => {
  expect(formatDuration(i18next.t, 5 * DAY + 3 * 3600 + 59)).toBe("5天3小时");
  expect(formatDuration(i18next.t, 12 * 3600)).toBe("12小时");
  expect(formatDuration(i18next.t, 0.4)).toBe("0秒");
  await setLanguage("en");
  expect(formatDuration(i18next.t, 200)).toBe("3m 20s");
});

test("a duration never runs backwards, whatever the clocks say", () => {
  expect(formatDuration(i18next.t, -5)).toBe("0秒");
});

test("GPU time is told in a unit that can be read", async () => {
  const text = () =>
    [0.0097, 1 / 3600, 0.00008, 0.125, 1 / 60, 1, 12.345, 0].map((hours) => formatGpuTime(i18next.t, hours));
  expect(text().slice(0, 4)).toEqual(["35 GPU 秒", "1 GPU 秒", "1 GPU 秒", "8 GPU 分钟"]);
  await setLanguage("en");
  expect(text()).toEqual([
    "35 GPU-seconds",
    "1 GPU-second",
    "1 GPU-second",
    "8 GPU-minutes",
    "1 GPU-minute",
    "1 GPU-hour",
    "12.3 GPU-hours",
    "0 GPU-hours",
  ]);
});

test("a figure keeps few digits at every size", () => {
  expect(formatNumber(2.314_567)).toBe("2.3146");
  expect(formatNumber(51_234.56)).toBe("51,235");
  expect(formatNumber(0.003_43)).toBe("0.00343");
  expect(formatNumber(0.000_03)).toBe("3e-5");
  expect(formatNumber(-0.000_012_36)).toBe("-1.24e-5");
  expect(formatNumber(0)).toBe("0");
});

test("counts and sizes are told as the platform tells them", () => {
  expect(figures.counts.map(([value]) => [value, formatCount(value as number)])).toEqual(figures.counts);
  expect(figures.sizes.map(([value]) => [value, formatBytes(value as number)])).toEqual(figures.sizes);
});
