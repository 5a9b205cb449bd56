import axe from "axe-core";
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const SHOTS = process.env.FERMI_E2E_SHOTS ?? join(tmpdir(), `fermi-console-shots-${userInfo().username}`);
export const WIDTHS = [1440, 390];
export const THEMES = ["light", "dark"];

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A fresh profile each time. */
export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
}

/** Machines differ, and other tests run beside: so many times slower than where a deadline was chosen. */
const SLOWER = 3;

/** A page in a context of its own, with cookies and storage if given, and what it does that no page may. */
export async function openPage(browser, url, waitMs, storageState) {
  const context = await browser.newContext({
    storageState,
    viewport: { width: 1440, height: 900 },
    locale: "de-DE",
    reducedMotion: "reduce",
  });
  const faults = watch(context, new URL(url).origin);
  const page = await context.newPage();
  page.setDefaultTimeout(SLOWER * waitMs);
  return { page, faults };
}

/** Whatever runs behind the door of an environment is on a host name of its own, and no page of the console. */
const isDoor = (url) => URL.canParse(url) && new URL(url).hostname.endsWith(".localhost");

/** Collects what no page may do: fail in its console, break the content security policy, ask another origin. */
export function watch(context, origin) {
  const faults = [];
  context.on("console", (message) => {
    const refused = /Failed to load resource.*(400|401|404|409)/.test(message.text()); // answers that tests provoke
    if (message.type() === "error" && !refused && !isDoor(message.location().url)) faults.push(message.text());
  });
  context.on("weberror", (error) => faults.push(String(error.error())));
  context.on("request", (request) => {
    const { protocol, origin: asked } = new URL(request.url());
    if (asked !== origin && !["data:", "blob:"].includes(protocol) && !isDoor(request.url()))
      faults.push(`request to ${request.url()}`);
  });
  return faults;
}

/** What axe finds to be serious or worse, one line each. */
export async function violations(page) {
  await page.evaluate(axe.source); // through the debugger: the content security policy stays in force
  const { violations: found } = await page.evaluate(() => axe.run(document));
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`);
}

/** Every width and theme of the page as it stands; gives the widths at which it scrolls sideways. */
export async function shoot(page, name) {
  mkdirSync(SHOTS, { recursive: true });
  const tooWide = [];
  const before = page.viewportSize();
  await page.evaluate(() => scrollTo(0, 0));
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    for (const theme of THEMES) {
      await setTheme(page, theme);
      await page.screenshot({ path: join(SHOTS, `${name}-${width}-${theme}.png`), fullPage: true });
    }
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) tooWide.push(width);
  }
  await page.setViewportSize(before);
  return tooWide;
}

/** As `shoot`, for pages that follow the system's theme. */
export async function shootByMedia(page, name) {
  mkdirSync(SHOTS, { recursive: true });
  const before = page.viewportSize();
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    for (const colorScheme of THEMES) {
      await page.emulateMedia({ colorScheme });
      await page.reload();
      await page.screenshot({ path: join(SHOTS, `${name}-${width}-${colorScheme}.png`), fullPage: true });
    }
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(before);
}

export async function setTheme(page, theme) {
  const button = page.getByRole("button", { name: theme === "dark" ? /深色|dark/i : /浅色|light/i });
  if (await button.isVisible()) await button.click();
  else await page.evaluate((name) => (document.documentElement.dataset.theme = name), theme); // a dialog is open
}

/** Waits until nothing is fetched again or moves: what is being fetched again is dimmed, and fades in afterwards. */
async function settle(page) {
  await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
  await page.waitForFunction(() =>
    document
      .getAnimations()
      .every((one) => one.playState !== "running" || one.effect?.getComputedTiming().iterations === Infinity),
  );
}

/** At every width and in both themes: nothing scrolls sideways, and axe finds nothing serious. */
export async function looksRight(page, name) {
  await settle(page);
  assert.deepEqual(await shoot(page, name), [], `${name} scrolls sideways`);
  for (const theme of THEMES) {
    await setTheme(page, theme);
    await settle(page);
    let found = await violations(page);
    if (found.length > 0) {
      await settle(page); // a part may have been fetched again while axe looked at it
      found = await violations(page);
    }
    assert.deepEqual(found, [], `${name}, ${theme}`);
  }
  await setTheme(page, "light");
}
