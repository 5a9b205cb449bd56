import { render, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { moveRovingFocus } from "./roving-focus";

/** Ten squares of ten pixels in lines of four. */
function Squares() {
  return (
    <div onKeyDown={moveRovingFocus}>
      {Array.from({ length: 10 }, (_, index) => (
        <button key={index} data-rove tabIndex={index === 0 ? 0 : -1}>
          {index}
        </button>
      ))}
    </div>
  );
}

test("many squares are one tab stop, and arrows lead through their lines", async () => {
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockImplementation(function (this: Element) {
    const index = Number(this.textContent);
    return new DOMRect((index % 4) * 10, Math.floor(index / 4) * 10, 10, 10);
  });
  render(<Squares />);
  const now = () => document.activeElement?.textContent;
  await userEvent.tab();
  expect(now()).toBe("0");
  for (const [key, index] of [
    ["ArrowRight", 1],
    ["ArrowDown", 5],
    ["ArrowDown", 9],
    ["ArrowDown", 9],
    ["ArrowUp", 5],
    ["ArrowLeft", 4],
    ["ArrowLeft", 3],
    ["ArrowDown", 7],
    ["ArrowDown", 9],
    ["Home", 0],
    ["ArrowUp", 0],
    ["End", 9],
  ] as const) {
    await userEvent.keyboard(`{${key}}`);
    expect(now(), key).toBe(String(index));
  }
  await userEvent.tab();
  expect(screen.getAllByRole("button")).not.toContain(document.activeElement);
  vi.restoreAllMocks();
});
