// The create page of a platform of its own, signed in, and what its tests share.
import { launch, looksRight as looks, openPage } from "./browser.js";
import { platform } from "./platform.js";
import { eventually as poll } from "./polling.js";

const LOOK_MS = 60_000;

export async function createPage(options) {
  const fermi = await platform(options);
  const browser = await launch();
  const { page, faults } = await openPage(browser, fermi.url, LOOK_MS);
  await page.goto(fermi.link);
  await page.waitForURL("**/overview");

  /** A fresh form in Chinese, whatever another test left behind. */
  async function open(query = "") {
    await page.evaluate(() => {
      sessionStorage.clear();
      localStorage.clear();
    });
    await page.goto(`${fermi.url}/training/create${query}`);
    await page.getByText(/ 个环境$/).waitFor();
  }

  async function unfold(title) {
    const fold = page.locator("details", { has: page.locator("summary", { hasText: title }) }).first();
    if ((await fold.getAttribute("open")) === null) await fold.locator("summary").first().click();
  }

  /** Opens the tab in which a control lies. */
  async function openTab(name) {
    const panel = page.getByRole("tabpanel", { includeHidden: true }).filter({ has: page.locator(`[name="${name}"]`) });
    if ((await panel.count()) > 0) await page.locator(`[id="${await panel.getAttribute("aria-labelledby")}"]`).click();
  }

  const looksRight = (name) => looks(page, name);

  return {
    page,
    faults,
    open,
    unfold,
    openTab,
    /** Trains a script of one's own in place of a model. */
    takeScript: () => page.getByRole("radio", { name: "我的脚本" }).click(),
    looksRight,
    seed: fermi.seed,
    write: fermi.write,
    eventually: (look, what, ms = LOOK_MS) => poll(page, look, what, ms),
    button: (name) => page.getByRole("button", { name, exact: true }),
    card: (name) => page.getByRole("checkbox", { name, exact: true }),
    /** A control by the API's name of its field. */
    named: (name) => page.locator(`form [name="${name}"]`),
    chosenText: (select) => select.evaluate((element) => element.selectedOptions[0].text),
    /** What the summary says of `label`. */
    fact: (label) =>
      page
        .locator("aside dl div", { has: page.getByText(label, { exact: true }) })
        .locator("dd")
        .innerText(),
    close: async () => {
      await browser.close();
      await fermi.stop();
    },
  };
}
