import { screen } from "@testing-library/react";
import { http } from "msw";
import { expect, test } from "vitest";
import { dataset } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

const exposed = {
  level: "warn",
  code: "ISOLATION_NONE",
  message: "本机上的训练没有与平台自身的文件和进程隔离。",
  hint: "脚本可以读取管理员令牌。",
  remedy: "",
};

test("an administrator reads on every page that nothing protects the platform", async () => {
  platformHandlers.use(http.get(apiUrl("/notices"), () => respondWith({ fit: true, findings: [exposed] })));
  renderAt("/datasets");
  const notice = await screen.findByRole("region", { name: "平台运维提示" });
  expect(notice.textContent).toContain(exposed.message);
  expect(notice.textContent).toContain(exposed.hint);
});

test("a disk that fills up is said on every page, beside the rest", async () => {
  const full = {
    level: "warn",
    code: "DISK_NEARLY_FULL",
    message: "/srv/fermi 所在磁盘已用 95%，还剩 50 MiB。",
    hint: "请清理或扩容",
    remedy: "",
  };
  platformHandlers.use(http.get(apiUrl("/notices"), () => respondWith({ fit: true, findings: [exposed, full] })));
  renderAt("/workers");
  const notice = await screen.findByRole("region", { name: "平台运维提示" });
  for (const { message, hint } of [exposed, full]) {
    expect(notice.textContent).toContain(message);
    expect(notice.textContent).toContain(hint);
  }
});

test("without anything to say there is no notice", async () => {
  renderAt("/datasets");
  await screen.findByText(dataset.name);
  expect(screen.queryByRole("region", { name: "平台运维提示" })).toBeNull();
});
