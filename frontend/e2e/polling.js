import assert from "node:assert/strict";

/** Polls `look` until it gives something true; says what the page showed when it never did. */
export async function eventually(page, look, what, ms) {
  const deadline = Date.now() + ms;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > deadline)
      assert.fail(`never saw ${what}; the page says:\n${await page.locator("body").innerText()}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
