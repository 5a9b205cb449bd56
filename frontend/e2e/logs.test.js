// Logs of a real task: found by expression, level and time, side by side, and the first error.
import assert from "node:assert/strict";
import { looksRight as looks } from "./browser.js";
import { defineSuite, runScript } from "./suite.js";
import { eventually as poll } from "./polling.js";

const WAIT_MS = 60_000;
const SIGNAL = "go";
const LINES = 600;

/** One line for each second from 05:00 on, on rank 1 for every other; rank 1 fails at 05:05 and goes on. */
const SCRIPT = `import os, time, traceback
rank = int(os.environ["RANK"])
say = lambda second, level, text: print(f"2026-11-21T05:{second // 60:02}:{second % 60:02}Z {level} {text}", flush=True)
for second in range(0, ${LINES}, rank + 1):
    if second % 100 == 50:
        say(second, "WARNING", f"slow storage, {second} ms")
    if rank == 1 and second == 300:
        say(second, "ERROR", "a batch was skipped")
        try:
            raise ValueError("bad batch")
        except ValueError:
            print(traceback.format_exc(), flush=True)
    say(second, "INFO", f"step {second} of rank {rank}")
say(${LINES}, "DEBUG", "a" * 40 + "!")
while not os.path.exists(os.path.join(os.path.dirname(__file__), "${SIGNAL}")):
    time.sleep(0.1)
say(${LINES}, "INFO", "late word")
time.sleep(3600)
`;

let fermi, page, address;

const { test } = defineSuite({
  waitMs: WAIT_MS,
  prepare: async (fermi) => {
    address = await runScript(fermi, "e2e-logs", SCRIPT);
  },
  use: (given) => ({ fermi, page } = given),
});

const eventually = (look, what) => poll(page, look, what, WAIT_MS);
const looksRight = (name) => looks(page, name);
const button = (name) => page.getByRole("button", { name, exact: true });
const search = () => page.getByLabel("在日志中查找");
const log = (at = 0) => page.getByRole("group", { name: "训练日志" }).nth(at);
const chosen = () => page.locator('[aria-current="true"]');

async function openLog() {
  await page.goto(address);
  await page.getByText(/^60\d 行$/).waitFor();
}

const chooseRank = (rank) => page.getByLabel("进程", { exact: true }).selectOption(rank);

/** The step of the first whole row in sight. */
const stepInSight = (at) =>
  log(at).evaluate((box) => {
    const { top } = box.getBoundingClientRect();
    const rows = [...box.querySelectorAll(".whitespace-pre")].filter((row) => row.getBoundingClientRect().top >= top);
    const steps = rows.map((row) => /step (\d+) of/.exec(row.textContent)?.[1]).filter(Boolean);
    return Math.min(...steps.map(Number));
  });

test("a regular expression is searched by the platform and highlighted", async () => {
  await openLog();
  await button("正则表达式").click();
  await search().fill("step \\d*99 of");
  await page.getByText("6 行匹配", { exact: true }).waitFor();
  await eventually(async () => (await page.locator("mark").count()) === 6, "six marks");
  assert.equal(await page.locator("mark").first().innerText(), "step 99 of");
  await looksRight("logs-expression");
});

test("an invalid expression shows an error at its field", async () => {
  await openLog();
  await button("正则表达式").click();
  await search().fill("step (");
  await eventually(async () => (await search().getAttribute("aria-invalid")) === "true", "the expression refused");
  await page.getByText(/^step \( 不是有效的正则表达式/).waitFor();
  await looksRight("logs-expression-refused");
});

test("an expensive expression does not block the page", async () => {
  await openLog();
  await button("正则表达式").click();
  await search().fill("(a+)+$|!");
  await page.getByText("1 行匹配", { exact: true }).waitFor();
  await log().getByText("aaaa!").waitFor();
  await search().fill("a!");
  await page.locator("mark", { hasText: "a!" }).waitFor();
});

test("new output of a running task is searched as it arrives", async () => {
  await openLog();
  await search().fill("late");
  await page.getByText("没有匹配的行").waitFor();
  fermi.write(SIGNAL, "");
  await page.getByText("1 行匹配", { exact: true }).waitFor();
});

test("level filters show warnings of one rank and a whole traceback of the other", async () => {
  await openLog();
  await page.getByLabel("级别").selectOption("warning");
  await page.getByText("6 行匹配", { exact: true }).waitFor();
  assert.equal(await log().getByTitle("警告").count(), 6);
  await page.getByLabel("级别").selectOption("error");
  await page.getByText("没有匹配的行").waitFor();
  await chooseRank("1");
  await log().getByText("ValueError: bad batch").waitFor();
  await log().getByText("Traceback (most recent call last)").waitFor();
  await looksRight("logs-errors");
});

test("a found line is shown in its context", async () => {
  await openLog();
  await page.getByLabel("级别").selectOption("error");
  await chooseRank("1");
  await log().getByText("ValueError: bad batch").click();
  await page.getByText(/^\d+ 行$/).waitFor();
  assert.match(await chosen().innerText(), /ValueError: bad batch/);
  await log().getByText("step 300 of rank 1").waitFor();
});

test("a key jumps to the first error of any rank", async () => {
  await openLog();
  await chooseRank("0");
  await log().getByText("rank 0").first().waitFor();
  await page.locator("h1").click();
  await page.keyboard.press("e");
  await chosen().getByText("a batch was skipped").waitFor();
  assert.equal(await page.getByLabel("进程", { exact: true }).inputValue(), "1");
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("第一个错误").waitFor();
  await page.keyboard.press("Escape");
});

test("times are shown with lines, used as filters and as a jump target", async () => {
  await openLog();
  await chooseRank("1");
  await log().getByText("rank 1").first().waitFor();
  const moment = (second) =>
    page.evaluate((at) => {
      const local = new Date(Date.parse("2026-11-21T05:00:00Z") + 1000 * at);
      return new Date(local.getTime() - 60_000 * local.getTimezoneOffset()).toISOString().slice(0, 19);
    }, second);
  await button("时间").click();
  await page.getByLabel("在行前显示时间").check();
  await page.getByLabel("从", { exact: true }).fill(await moment(100));
  await page.getByLabel("到", { exact: true }).fill(await moment(108));
  await page.getByText("5 行匹配", { exact: true }).waitFor();
  await looksRight("logs-times");
  await button("不限时间").click();
  await page.getByLabel("跳到").fill(await moment(401));
  await button("前往").click();
  await chosen().getByText("step 402 of rank 1").waitFor();
  await looksRight("logs-place");
  await button("时间").click();
});

test("ranks side by side scroll together by time", async () => {
  await openLog();
  await chooseRank("1");
  await log().getByText("rank 1").first().waitFor();
  await button("并排查看").click();
  await log(1).getByText("rank 0").first().waitFor();
  await log(0).hover();
  for (const [way, reached] of [
    [-6_000, (step) => step < 300],
    [1_500, (step) => step > 100],
  ]) {
    await page.mouse.wheel(0, way);
    await eventually(async () => reached(await stepInSight(0)), "the first log scrolled");
    await eventually(
      async () => Math.abs((await stepInSight(0)) - (await stepInSight(1))) <= 2,
      "the second log at the same time",
    );
  }
  await looksRight("logs-beside");
  await button("并排查看").click();
  await button("Switch to English").click();
  await page.getByRole("button", { name: "Scroll together" }).waitFor();
  await looksRight("logs-beside-english");
  await page
    .getByRole("button", { name: /^Close the log/ })
    .nth(2)
    .click();
  await page
    .getByRole("button", { name: /^Close the log/ })
    .nth(1)
    .click();
  await page.getByLabel("Level").selectOption("warning");
  await page.getByText(/^[\d,]+ match(es)?$/).waitFor();
  await looksRight("logs-english");
});
