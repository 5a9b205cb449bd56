// What tests of the create page share.
import { looksRight as looks } from "./browser.js";
import { eventually as poll } from "./polling.js";
import { defineSuite } from "./suite.js";

const LOOK_MS = 60_000;

/** Defines tests of the create page; `use` gets what they share, anew for each test. */
export function defineCreateSuite({ use, ...rest }) {
  return defineSuite({ ...rest, waitMs: LOOK_MS, use: ({ fermi, page }) => use(buildCreatePage(fermi, page)) });
}

function buildCreatePage(fermi, page) {
  /** Opens the form, in Chinese. */
  async function open(query = "") {
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
    fermi,
    open,
    unfold,
    openTab,
    /** Trains a script of one's own in place of a model. */
    takeScript: () => page.getByRole("radio", { name: "我的脚本" }).click(),
    looksRight,
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
  };
}
