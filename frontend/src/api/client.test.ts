import { http as msw } from "msw";
import { expect, test } from "vitest";
import { setLanguage } from "@/i18n";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { fetchAllPages, http, unwrapResponse } from "./client";
import { ApiError, isRetryable } from "./errors";

test("every request asks for the chosen language, and writes carry the CSRF token", async () => {
  const seen: Headers[] = [];
  platformHandlers.use(
    msw.get(apiUrl("/models"), ({ request }) => {
      seen.push(request.headers);
      return respondWithList();
    }),
    msw.post(apiUrl("/training-tasks/task-1/stop"), ({ request }) => {
      seen.push(request.headers);
      return respondWith({});
    }),
  );
  await unwrapResponse(http.GET("/api/v1/models"));
  await setLanguage("en");
  await unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/stop", { params: { path: { task_id: "task-1" } } }));
  expect(seen[0]?.get("accept-language")).toBe("zh-CN");
  expect(seen[0]?.has("x-csrftoken")).toBe(false);
  expect(seen[1]?.get("accept-language")).toBe("en");
  expect(seen[1]?.get("x-csrftoken")).toBe("from-config");
});

test("a refusal keeps its status, code, problems and request id", async () => {
  const problem = { field: "taskName", error: "NAME_REQUIRED", message: "请输入任务名称", hint: "" };
  platformHandlers.use(
    msw.get(apiUrl("/models"), () => respondWithError(400, "INVALID_REQUEST", "请求有误", [problem])),
  );
  const error: unknown = await unwrapResponse(http.GET("/api/v1/models")).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({
    status: 400,
    code: "INVALID_REQUEST",
    message: "请求有误",
    problems: [problem],
    requestId: "req-1",
  });
});

test("only what may come right by itself is asked for again", () => {
  expect(isRetryable(0, new ApiError(404, {}))).toBe(false);
  expect(isRetryable(0, new ApiError(502, "Bad Gateway"))).toBe(true);
  expect(isRetryable(0, new TypeError("network"))).toBe(true);
  expect(isRetryable(2, new TypeError("network"))).toBe(false);
});

test("a paged list is read to its end, and no further", async () => {
  const query: number[] = [];
  const items = await fetchAllPages((page) => {
    query.push(page);
    return Promise.resolve({ items: page === 3 ? [5] : [2 * page - 1, 2 * page], total: 5 });
  });
  expect(items).toEqual([1, 2, 3, 4, 5]);
  expect(query).toEqual([1, 2, 3]);
});
