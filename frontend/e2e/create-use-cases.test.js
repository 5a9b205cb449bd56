// What helps to choose on the create page: use cases, the table of scenarios, training across zones, frameworks not installed.
import assert from "node:assert/strict";
import { defineCreateSuite } from "./create-page.js";

const USE_CASES = "从典型用例开始（LLaMA2-7B、BERT-Large、GPT-3）";
let page, open, unfold, looksRight, button, card, named, chosenText;

const { test } = defineCreateSuite({
  use: (given) => ({ page, open, unfold, looksRight, button, card, named, chosenText } = given),
});

test("use cases fill the form with available environments, and their small variants can be submitted", async () => {
  await open();
  await unfold(USE_CASES);
  const gpt3 = page.locator("li", { hasText: "训练GPT-3 175B参数模型" });
  await gpt3.getByRole("button", { name: "按此填写" }).click();
  await page.getByText("还缺 7 个有 8xA100 的可用环境").waitFor();
  assert.equal(await named("taskName").inputValue(), "gpt3-175b");
  assert.ok(await card("nlp-research-lab").isChecked());
  await looksRight("create-use-case");

  await gpt3.getByRole("button", { name: "小规模试跑" }).click();
  await page.getByText("分布式训练 · 使用 DeepSpeed").waitFor();
  assert.ok((await card("pytorch-dev-env").isChecked()) && (await card("cv-experiment-env").isChecked()));
  await page.getByText("可以提交").waitFor();
  await button("创建并启动训练").click();
  await page.getByText("分布式训练 · 2个节点 · 总计4个GPU", { exact: true }).waitFor();
  await page.waitForURL(/\/training\/task-/);
});

test("several zones show pros, cons and the row of the scenario table", async () => {
  await open();
  for (const name of ["pytorch-dev-env", "llm-training-env", "nlp-research-lab"]) await card(name).click();
  for (const words of ["更多资源可用", "网络延迟高（RTT 通常为 5-50ms，尚未实测）", "单一可用区资源不足"])
    await page.getByText(words).waitFor();
  await page.getByText("大规模训练 · PyTorch DDP · 数据并行").click();
  await page.getByRole("row", { name: /超大模型.*4\+.*32\+.*DeepSpeed\/PyTorch FSDP/ }).waitFor();
  await looksRight("create-choosing");
});

test("a framework that is not installed shows how to build it", async () => {
  await open();
  for (const name of ["pytorch-dev-env", "cv-experiment-env"]) await card(name).click();
  const framework = named("distributedConfig.framework");
  await framework.selectOption("horovod");
  if ((await chosenText(framework)) === "Horovod") return; // it is installed here
  assert.equal(await chosenText(framework), "Horovod（未安装）");
  await page
    .getByText(/make test-frameworks ONLY=horovod/)
    .first()
    .waitFor();
  await looksRight("create-not-installed");
});

test("use cases and errors in English", async () => {
  await open();
  await button("Switch to English").click();
  await unfold("Start from a use case");
  await page
    .locator("li", { hasText: "Pre-train BERT-Large" })
    .getByRole("button", { name: "Fill in the form" })
    .click();
  await page.getByText("The GPUs of cv-experiment-env (V100) are not A100.").first().waitFor();
  await named("taskName").fill("");
  await page.getByText("Enter a name for the task").first().waitFor();
  await looksRight("create-use-case-en");
});
