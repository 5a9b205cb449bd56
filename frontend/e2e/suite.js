// Tests that do not depend on one another: each has a page of its own, on a platform that the tests of a file share.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { launch, openPage } from "./browser.js";
import { platform } from "./platform.js";

/**
 * Returns functions that define tests. Before each one a page is opened, signed in unless `signedIn: false`, and
 * `use({ fermi, page })` hands it over. After it, the page must have done nothing that `faults` of browser.js collects;
 * `allowed` names the exceptions. `prepare(fermi)` runs once, before all tests.
 *
 * FERMI_E2E_SHUFFLE=<any text> runs the tests in another order, the same for the same text.
 */
export function defineSuite({ options, prepare, use, waitMs = 60_000, allowed }) {
  let fermi, browser, session;
  const tests = [];

  before(async () => {
    fermi = await platform(options);
    browser = await launch();
    const { page } = await openPage(browser, fermi.url, waitMs);
    await page.goto(fermi.link);
    await page.waitForURL("**/overview");
    session = await page.context().storageState();
    await page.context().close();
    await prepare?.(fermi);
  });
  after(async () => {
    await browser?.close();
    await fermi?.stop();
  });

  const run = (body, signedIn) => async (context) => {
    const { page, faults } = await openPage(browser, fermi.url, waitMs, signedIn ? session : undefined);
    use({ fermi, page });
    try {
      await body(context);
      assert.deepEqual(
        faults.filter((fault) => !allowed?.test(fault)),
        [],
        "what no page may do",
      );
    } finally {
      await page.context().close();
    }
  };

  const define = (name, body, { signedIn = true } = {}) => tests.push([name, run(body, signedIn)]);
  queueMicrotask(() => {
    const seed = process.env.FERMI_E2E_SHUFFLE;
    const rank = ([name]) => createHash("sha256").update(`${seed}:${name}`).digest("hex");
    const sorted = seed ? tests.toSorted((one, other) => (rank(one) < rank(other) ? -1 : 1)) : tests;
    for (const [name, body] of sorted) test(name, body);
  });
  return { test: define, journey: (name, steps) => define(name, (context) => runSteps(context, steps)) };
}

/** Creates a task of one node, with other fields of the request where they are given, and returns its id. */
export async function createTask(fermi, taskName, fields) {
  const answer = await fetch(`${fermi.url}/api/v1/training-tasks`, {
    method: "POST",
    headers: { Authorization: `Bearer ${fermi.token()}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      taskName,
      datasetId: "dataset-001",
      datasetVersionId: "version-001",
      modelId: "model-001",
      launchMode: "existing",
      environmentIds: ["env-001"],
      ...fields,
    }),
  });
  const { data, message } = await answer.json();
  assert.ok(answer.ok, JSON.stringify({ message, data }));
  return data.taskId;
}

/** Creates a task that runs a script with this text, and returns the address of its page. */
export async function runScript(fermi, taskName, text) {
  const script = fermi.write(`${taskName}.py`, text);
  const id = await createTask(fermi, taskName, { entrypoint: { script, args: [] }, onHang: "report" });
  return `${fermi.url}/training/${id}`;
}

/** A step of a journey. */
export const step = (name, body) => [name, body];

/** Runs steps of which each goes on where the one before it ended; after a failure the rest is skipped. */
async function runSteps(context, steps) {
  let failed = false;
  for (const [name, body] of steps) {
    await context.test(name, async (within) => {
      if (failed) return within.skip("an earlier step failed");
      failed = true;
      await body(within);
      failed = false;
    });
  }
}

/** Returns a function that makes something at its first call, for all tests that need it. */
export function once(make) {
  let made;
  return () =>
    (made ??= make().catch((error) => {
      made = undefined;
      throw error;
    }));
}
