import { expect, test } from "vitest";
import { chooseReadable, getContrast, MAX_RUNS, parseColours, removeCodes } from "./ansi";

const ESC = "\u001b";
/** Runs as text and what is set. */
const shown = (line: string) =>
  parseColours(line).map(({ from, to, ...run }) => [
    removeCodes(line).slice(from, to),
    ...Object.entries(run).flatMap(([name, value]) => (value === true ? [name] : value ? [`${name} ${value}`] : [])),
  ]);

test("codes are no text: colours, cursor movements, titles, links, the clipboard", () => {
  expect(
    removeCodes(`${ESC}[31mred${ESC}[0m ${ESC}[2K${ESC}[1Aup ${ESC}]52;c;QQ==\u0007${ESC}]8;;http://a${ESC}\\link`),
  ).toBe("red up link");
  expect(removeCodes("bell\u0007 feed\f null\u0000\ttab 损失")).toBe("bell feed null\ttab 损失");
  expect(removeCodes(`cut ${ESC}[3`)).toBe("cut [3");
});

test("sixteen colours, 256 and true colour are read, with decorations", () => {
  expect(shown(`${ESC}[1;31mERROR${ESC}[0m plain ${ESC}[4mline${ESC}[m`)).toEqual([
    ["ERROR", "foreground 187, 0, 0", "bold"],
    ["line", "underline"],
  ]);
  expect(shown(`${ESC}[38;5;208ma${ESC}[38;2;1;2;3mb${ESC}[38:2::4:5:6mc${ESC}[38:5:208md`)).toEqual([
    ["a", "foreground 255, 135, 0"],
    ["b", "foreground 1, 2, 3"],
    ["c", "foreground 4, 5, 6"],
    ["d", "foreground 255, 135, 0"],
  ]);
  expect(shown(`${ESC}[2;3;9;44mall${ESC}[22;23;29;49mnone`)).toEqual([
    ["all", "background 0, 0, 187", "dim", "italic", "strikethrough"],
  ]);
  expect(shown(`${ESC}[7mreversed${ESC}[31m red${ESC}[27m `)).toEqual([
    ["reversed", "reverse"],
    [" red", "foreground 0, 0, 0", "background 187, 0, 0"],
    [" ", "foreground 187, 0, 0"],
  ]);
});

test("runs lie in the text without codes, whatever stands between", () => {
  const line = `a\u0007b${ESC}[2K${ESC}[32mgreen${ESC}[1A!${ESC}[39m${ESC}]0;t\u0007 rest`;
  expect(removeCodes(line)).toBe("abgreen! rest");
  expect(shown(line)).toEqual([["green!", "foreground 0, 187, 0"]]);
});

test("a line has a bounded number of runs", () => {
  expect(parseColours(`${ESC}[31ma${ESC}[32mb`.repeat(MAX_RUNS))).toHaveLength(MAX_RUNS);
  expect(shown(`${ESC}[31`)).toEqual([]);
});

test("on a background a text can be read", () => {
  expect(chooseReadable("0, 0, 0", "187, 0, 0")).toBe("255, 255, 255");
  expect(chooseReadable("255, 255, 255", "0, 0, 187")).toBe("255, 255, 255");
  expect(chooseReadable(undefined, "255, 255, 85")).toBe("0, 0, 0");
  for (let shade = 0; shade < 256; shade++) {
    const background = `${shade}, ${255 - shade}, ${shade}`;
    expect(getContrast(chooseReadable(background, background), background)).toBeGreaterThanOrEqual(4.5);
  }
});
