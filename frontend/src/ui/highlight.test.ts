import { expect, test } from "vitest";
import { tokenize } from "./highlight";

const kinds = (name: string, text: string) =>
  tokenize(name, text)
    .filter(({ kind }) => kind)
    .map(({ kind, text: piece }) => [kind, piece]);

test("JSON: keys are told from strings", () => {
  expect(kinds("ds_config.json", '{"a": "b", "n": -1.5e3, "ok": true}')).toEqual([
    ["key", '"a"'],
    ["string", '"b"'],
    ["key", '"n"'],
    ["number", "-1.5e3"],
    ["key", '"ok"'],
    ["keyword", "true"],
  ]);
});

test("YAML: keys, comments and list dashes; a number inside a word is none", () => {
  expect(kinds("job.yaml", "kind: Job # one\nnodes:\n  - name: env-001\n    gpus: 2")).toEqual([
    ["key", "kind"],
    ["comment", "# one"],
    ["key", "nodes"],
    ["keyword", "-"],
    ["key", "name"],
    ["key", "gpus"],
    ["number", "2"],
  ]);
});

test("a script is known by its first line", () => {
  expect(kinds("launch", "#!/bin/sh\nexport RANK=0\nexec train --epochs 3")).toEqual([
    ["comment", "#!/bin/sh"],
    ["keyword", "export"],
    ["key", "RANK"],
    ["number", "0"],
    ["keyword", "exec"],
    ["key", "--epochs"],
    ["number", "3"],
  ]);
});

test("the pieces are the text, whatever is in it", () => {
  for (const [name, text] of [
    ["a.py", 'def f():\n    """doc\n    text"""\n    return "x" # end\n'],
    ["a.json", '{"unfinished: '],
    ["a.txt", "no language"],
    ["a.sh", "echo '\n"],
  ] as const) {
    expect(
      tokenize(name, text)
        .map((token) => token.text)
        .join(""),
    ).toBe(text);
  }
});
