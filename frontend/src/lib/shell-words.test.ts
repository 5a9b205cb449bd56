import { expect, test } from "vitest";
import { joinWords, splitWords } from "./shell-words";

test("words are read as a shell reads them", () => {
  expect(splitWords("  torchrun --nproc_per_node=2\n train.py ")).toEqual([
    "torchrun",
    "--nproc_per_node=2",
    "train.py",
  ]);
  expect(splitWords(`a 'b c' "d \\"e\\" $f" g\\ h --x='y z'`)).toEqual(["a", "b c", 'd "e" $f', "g h", "--x=y z"]);
  expect(splitWords("")).toEqual([]);
  expect(splitWords("it's")).toEqual(["it's"]);
});

test("words that are written are read as they were", () => {
  const words = ["bash", "run me.sh", "it's", "", "损失", "{path}", 'say "hi"', "a\\b", "$HOME"];
  expect(splitWords(joinWords(words))).toEqual(words);
  expect(joinWords(["python", "train.py"])).toBe("python train.py");
});
