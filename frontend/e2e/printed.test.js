// What a script prints for people: curves from its lines, one line for each of its bars, and its colours.
import assert from "node:assert/strict";
import { looksRight as looks } from "./browser.js";
import { eventually as poll } from "./polling.js";
import { defineSuite, runScript } from "./suite.js";

const WAIT_MS = 20_000;
const SIGNAL = "finish";

/** As nanoGPT prints, with tqdm's bars, one in the other, and colours; it says nothing to the platform. */
const SCRIPT = `import os, sys, time
from tqdm import tqdm
rank = int(os.environ["RANK"])
print("\\x1b[32mINFO\\x1b[0m: begin \\x1b]0;a title\\x07\\x1b[1;38;5;208mwarm\\x1b[m words", flush=True)
print("\\x1b[41mback\\x1b[0m \\x1b[38;2;255;255;0mbright\\x1b[0m \\x1b[30mblack\\x1b[0m \\x1b[97mwhite\\x1b[0m", flush=True)
print("\\x1b[31mERROR\\x1b[0m: \\x1b[4mnot a real one\\x1b[24m", flush=True)
for step in range(0, 400, 10):
    print(f"iter {step}: loss {4 - step / 200:.4f}, time {12.5:.2f}ms, mfu 40.00%", flush=True)
waits = lambda: not os.path.exists(os.path.join(os.path.dirname(__file__), "${SIGNAL}"))
for epoch in tqdm(range(3), desc=f"epochs of {rank}", file=sys.stdout):
    for step in tqdm(range(400), desc=f"steps of {rank}", file=sys.stdout, leave=False):
        time.sleep(0.005)
        while epoch == 1 and step == 200 and waits():
            time.sleep(0.1)
print("the end", flush=True)
while waits():
    time.sleep(0.1)
print("really", flush=True)
time.sleep(3600)
`;

let fermi, page, address;

const { test } = defineSuite({
  waitMs: WAIT_MS,
  prepare: async (fermi) => {
    address = await runScript(fermi, "e2e-printed", SCRIPT);
  },
  use: (given) => ({ fermi, page } = given),
});

const eventually = (look, what) => poll(page, look, what, WAIT_MS);
const looksRight = (name) => looks(page, name);
const log = () => page.getByRole("group", { name: "训练日志" });
/** The text of the newest rows in sight. */
const rows = async () =>
  (await log().locator(".whitespace-pre > span:last-child").allInnerTexts()).map((text) => text.trim());
const openLog = async () => {
  await page.goto(address);
  await log().getByText("warm words").or(log().getByText("steps of 0")).first().waitFor();
};

test("bars within bars are a line each while they run, also of several ranks", async () => {
  await openLog();
  await eventually(async () => {
    const [outer, inner] = (await rows()).slice(-2);
    return /^epochs of 0: {2}33%/.test(outer) && /^steps of 0: {2}(?:4\d|50)%/.test(inner);
  }, "both bars at the bottom");
  assert.equal((await rows()).filter((text) => text.startsWith("steps of 0")).length, 1);
  await page.getByLabel("进程", { exact: true }).selectOption("all");
  await eventually(async () => {
    const bars = (await rows()).slice(-4).map((text) => text.split(":")[0]);
    return bars.join() === "epochs of 0,steps of 0,epochs of 1,steps of 1";
  }, "the bars of both ranks, rank by rank");
  await looksRight("printed-bars");
});

test("colours are shown, and a search finds the text alone", async () => {
  await openLog();
  await page.getByLabel("在日志中查找").fill("begin warm words");
  await page.getByText("1 行匹配", { exact: true }).waitFor();
  await page.getByLabel("在日志中查找").fill("");
  await log().evaluate((box) => box.scrollTo(0, 0));
  const green = log().getByText("INFO", { exact: true });
  await green.waitFor();
  assert.equal(await green.evaluate((run) => run.style.getPropertyValue("--printed")), "rgb(0, 187, 0)");
  assert.equal(
    await log()
      .getByText("warm", { exact: true })
      .evaluate((run) => getComputedStyle(run).fontWeight),
    "700",
  );
  assert.equal((await rows()).filter((text) => text.includes("a title") || text.includes("[3")).length, 0);
  await looksRight("printed-colours");
  await page.getByLabel("级别").selectOption("error");
  await log().getByText("not a real one").waitFor();
});

test("the curve of printed lines names its source, and the lines can be switched off", async () => {
  await openLog();
  const curve = page.getByRole("img", { name: /^损失/ });
  await curve.waitFor();
  await page.getByText("来自 日志").first().waitFor();
  await page.getByText("日志中发现的 1 种行").click();
  const line = page.getByRole("switch").first();
  await looksRight("printed-found");
  await line.click();
  await curve.waitFor({ state: "detached" });
  await line.click();
  await curve.waitFor();
});

test("a bar that was taken away leaves no line, and one that ended leaves one", async () => {
  await openLog();
  fermi.write(SIGNAL, "");
  await eventually(async () => {
    const last = (await rows()).slice(-3);
    return /^epochs of 0: 100%/.test(last[0]) && last[1] === "the end" && last[2] === "really";
  }, "one line of the outer bar");
  assert.equal((await rows()).filter((text) => text.startsWith("steps of")).length, 0);
});
