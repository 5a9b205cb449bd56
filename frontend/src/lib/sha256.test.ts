import { createHash, randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { Sha256 } from "./sha256";

test("whatever its length and pieces, the hash is the one that everybody else computes", () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 70_001]) {
    const data = new Uint8Array(randomBytes(length));
    const wanted = createHash("sha256").update(data).digest("hex");
    for (const size of [1000, 64, 7]) {
      const hash = new Sha256();
      for (let at = 0; at < length; at += size) hash.update(data.subarray(at, at + size));
      expect(hash.hex()).toBe(wanted);
    }
  }
});
