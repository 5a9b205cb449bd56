import { render, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, test } from "vitest";
import { MessageList } from "./message-list";

const texts = () => screen.getAllByRole("listitem").map(({ textContent }) => textContent);

test("the worst is said first, in words too, and the rest once somebody asks for it", async () => {
  render(
    <MessageList
      most={2}
      notes={[
        { id: "a", level: "info", message: "a note" },
        { id: "b", level: "warn", message: "a warning" },
        { id: "c", level: "fail", message: "an error", hint: "mend it" },
      ]}
    />,
  );
  expect(texts()).toEqual(["错误：an errormend it", "注意：a warning", "还有 1 条"]);
  await userEvent.click(screen.getByRole("button", { name: "还有 1 条" }));
  expect(texts().at(-1)).toBe("提示：a note");
});
