// What surrounds the pages: the outline before them, the palette, the keys, and how lists look.
import assert from "node:assert/strict";
import { join } from "node:path";
import { looksRight as looks, SHOTS, violations, WIDTHS } from "./browser.js";
import { defineSuite } from "./suite.js";

let fermi, page;

const { test } = defineSuite({
  use: (given) => ({ fermi, page } = given),
  allowed: /ERR_FAILED/, // of scripts that a test holds back
});
const open = (path) => page.goto(fermi.url + path);
const finder = () => page.getByRole("combobox", { name: "搜索或输入命令" });
const rowHeights = () => page.locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.offsetHeight));

/** Where the lines are that hold a page together: under the header, and above the title and what follows it. */
const lines = () =>
  page.evaluate(() => {
    const [header, main] = document.querySelector("main")
      ? [document.querySelector("header"), document.querySelector("main")]
      : document.querySelectorAll("#root > div > div");
    const seen = [...main.children].filter((each) => each.offsetHeight > 0).slice(0, 2);
    return [header.getBoundingClientRect().bottom, ...seen.map((each) => each.getBoundingClientRect().top)];
  });

test("a page has its outline before JavaScript loads, without layout shift", async () => {
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    await page.route("**/assets/*.js", (route) => route.abort());
    await open("/environments");
    const outline = await lines();
    assert.deepEqual(await violations(page), [], `the outline at ${width}`);
    await page.unroute("**/assets/*.js");
    await open("/environments");
    await page.getByRole("link", { name: "cv-experiment-env", exact: true }).waitFor();
    assert.deepEqual(await lines(), outline, `at ${width}`);
  }
  await page.setViewportSize({ width: 1440, height: 900 });
});

/** Lets the header have as many unread notices and open proposals as it shows, for a user with a long name. */
async function fillHeader() {
  await page.route(/\/api\/v1\/(inbox|proposals|auth\/me)(\?|$)/, async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    const more = { unread: 120, total: 120, username: "alexandra.weissenberger" };
    for (const [name, value] of Object.entries(more)) if (name in body.data) body.data[name] = value;
    await route.fulfill({ response, json: body });
  });
}

test("every page is in the navigation in both languages, next to unread notices and open proposals", async () => {
  await fillHeader();
  await open("/zones");
  await page.getByText("北京可用区A").waitFor();
  await page.locator("header summary", { hasText: "99+" }).waitFor();
  await page.locator("header summary", { hasText: "管理9+" }).waitFor();
  for (const language of ["English", "中文"]) {
    for (const width of [768, 1024, 1280, 1366, 1376, 1440, 1472, 1480, 1600]) {
      await page.setViewportSize({ width, height: 900 });
      const entries = page.locator("header nav").locator("a:visible, summary:visible");
      const { hidden, lines } = await entries.evaluateAll((all) => {
        const nav = all[0].closest("nav").getBoundingClientRect();
        const boxes = all.map((entry) => ({ name: entry.textContent, box: entry.getBoundingClientRect() }));
        const outside = ({ left, right, top, bottom }) =>
          left < nav.left || right > Math.min(nav.right, innerWidth) || top < 0 || bottom > nav.bottom;
        return {
          hidden: boxes.filter(({ box }) => outside(box)).map(({ name }) => name),
          lines: new Set(boxes.map(({ box }) => Math.round(box.bottom))).size,
        };
      });
      assert.deepEqual(hidden, [], `at ${width}, before ${language}`);
      if (width >= 1280) assert.equal(lines, 1, `one line at ${width}, before ${language}`);
    }
    let pages = await page.locator("header nav a:visible").count();
    for (const group of await page.locator("header nav summary").all()) {
      await group.click();
      const links = page.locator("header nav details[open] a");
      await links.first().waitFor();
      pages += await links.count();
      await page.keyboard.press("Escape");
    }
    assert.equal(pages, 21, `pages before ${language}`);
    await page.getByRole("button", { name: language === "English" ? "Switch to English" : "切换到中文" }).click();
    await page
      .getByRole("link", { name: language === "English" ? "Training tasks" : "训练任务", exact: true })
      .waitFor();
  }
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.setViewportSize({ width: 1440, height: 900 });
});

test("the palette finds an environment by part of its name with the keyboard alone", async () => {
  await open("/zones");
  await page.getByText("北京可用区A").waitFor();
  await page.keyboard.press("Control+k");
  await finder().waitFor();
  await looks(page, "palette");
  await finder().fill("cv-exp");
  await page.getByRole("option", { name: /cv-experiment-env/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/environments\/env-002$/);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "键盘快捷键" }).waitFor();
  await looks(page, "shortcuts");
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("m");
  await page.waitForURL("**/models");
});

test("a model found in the palette has the focus on its page", async () => {
  await open("/zones");
  await page.getByText("北京可用区A").waitFor();
  await page.keyboard.press("Control+k");
  await finder().fill("model-001");
  await page.getByRole("option", { name: /model-001/ }).click();
  await page.waitForURL(/\/models#model-001$/);
  await page.waitForFunction(() => document.activeElement?.id === "model-001");
});

test("a list is sorted by the platform, saved as a view and shown compactly", async () => {
  await open("/environments");
  await page.getByRole("link", { name: "cv-experiment-env", exact: true }).waitFor();
  const names = () => page.locator("tbody tr td:first-child a").allInnerTexts();
  await page.getByRole("columnheader", { name: "CPU" }).getByRole("button").click();
  await page.waitForURL(/ordering=-cpuCores/);
  await page.getByRole("columnheader", { name: "CPU" }).and(page.locator('[aria-sort="descending"]')).waitFor();
  const largestFirst = () =>
    page.waitForFunction(() => document.querySelector("tbody tr a")?.textContent === "nlp-research-lab");
  await largestFirst();
  const ordered = await names();
  const loose = await rowHeights();
  await page.getByRole("button", { name: "紧凑行" }).click();
  const dense = await rowHeights();
  assert.ok(Math.max(...dense) <= 34 && Math.max(...dense) < Math.min(...loose), `${dense} of ${loose}`);
  await page.getByText("列", { exact: true }).click();
  await page.getByRole("checkbox", { name: "软件栈" }).click();
  await page.waitForURL(/hide=stack/);
  await page.keyboard.press("Escape");
  await page.getByText("视图", { exact: true }).click();
  await page.getByRole("textbox", { name: "视图名称" }).fill("by size");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "by size" }).waitFor();
  await looks(page, "environments-dense");
  await open("/environments");
  await page.getByText("视图", { exact: true }).click();
  await page.getByRole("link", { name: "by size" }).click();
  await page.waitForURL(/hide=stack&ordering=-cpuCores/);
  await page.getByRole("columnheader", { name: "软件栈" }).waitFor({ state: "detached" }); // the address is first
  await largestFirst();
  assert.deepEqual(await names(), ordered);
  assert.deepEqual(await rowHeights(), dense, "how close rows are is remembered");
});

test("the inbox opens, and a forbidden webhook address shows how to allow it", async () => {
  await open("/settings/notices");
  await page.getByRole("button", { name: "添加渠道" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("名称").fill("on call");
  await dialog.getByLabel("方式").selectOption("webhook");
  await dialog.getByLabel("地址").fill("https://hooks.example.org/x");
  await dialog.getByRole("button", { name: "保存" }).click();
  await dialog.getByText(/FERMI_NOTICE_HOSTS/).waitFor();
  await looks(page, "notice-channel");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "添加规则" }).click();
  await dialog.getByText("免打扰时段").waitFor();
  await looks(page, "notice-rule");
  await page.keyboard.press("Escape");
  await page.locator("summary", { hasText: "通知：0 条未读" }).click();
  await page.getByRole("region", { name: "通知" }).getByText("暂时没有与你有关的通知。").waitFor();
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    const { x, y, width: wide } = await page.getByRole("region", { name: "通知" }).boundingBox();
    assert.ok(x >= 0 && x + wide <= width, `from ${x}, ${wide} wide, at ${width}`);
    const links = await page.locator("header nav").boundingBox();
    assert.ok(y >= links.y + links.height || width > 640, `it begins at ${y}, within the header's links`);
    assert.deepEqual(await violations(page), [], `the bell at ${width}`);
    await page.screenshot({ path: join(SHOTS, `bell-${width}.png`) });
  }
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.keyboard.press("Escape");
});
