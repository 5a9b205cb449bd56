import { expect, test } from "vitest";
import { escapeName } from "./escape-name";

test.each([
  ["report.pdf", "report.pdf"],
  ["报告 2.txt", "报告 2.txt"],
  ["全　角", "全　角"],
  ["a\u202egpj.exe", "a\\u202egpj.exe"],
  ["a\u2066b\u2069", "a\\u2066b\\u2069"],
  ["zero\u200bwidth", "zero\\u200bwidth"],
  ["soft\u00adhyphen", "soft\\u00adhyphen"],
  ["filler\u3164", "filler\\u3164"],
  ["blank\u00a0", "blank\\u00a0"],
  ["line\nbreak\x1b[2J", "line\\u000abreak\\u001b[2J"],
  ["back\\slash", "back\\\\slash"],
  ["tag\u{e0041}", "tag\\u{e0041}"],
  ["half\ud800", "half\\ud800"],
])("%j is shown as %j", (name, shown) => {
  expect(escapeName(name)).toBe(shown);
});
