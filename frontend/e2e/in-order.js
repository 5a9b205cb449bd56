import { test } from "node:test";

/** Makes tests of which each goes on where the one before it ended, so after a failure the rest would only repeat it. */
export function inOrder() {
  let failed = false;
  return (name, body) =>
    test(name, async (context) => {
      if (failed) return context.skip("an earlier one failed");
      failed = true;
      await body();
      failed = false;
    });
}
