import { afterEach, expect, test } from "vitest";
import { isPageShortcut, ShortcutReader, isPaletteShortcut } from "./shortcuts";

afterEach(() => document.body.replaceChildren());

const press = (key: string, more: KeyboardEventInit = {}) =>
  new KeyboardEvent("keydown", { key, bubbles: true, ...more });

/** What a press says, heard from the whole page while the focus is in `html`. */
function heardFrom(html: string, event = press("j")): boolean {
  document.body.innerHTML = html;
  let forPage = false;
  addEventListener("keydown", (heard) => (forPage = isPageShortcut(heard)), { once: true });
  (document.querySelector("[data-here]") ?? document.body).dispatchEvent(event);
  return forPage;
}

test("two keys after one another lead to a page, and one of them alone to nothing", () => {
  const reader = new ShortcutReader();
  expect(reader.read("g", 0)).toBeUndefined();
  expect(reader.read("t", 500)).toEqual({ go: "/training" });
  expect(reader.read("t", 600)).toBeUndefined();
});

test("a second key that comes late, or means nothing, forgets the first", () => {
  const reader = new ShortcutReader();
  reader.read("g", 0);
  expect(reader.read("t", 2_000)).toBeUndefined();
  reader.read("g", 3_000);
  expect(reader.read("y", 3_100)).toBeUndefined();
  expect(reader.read("t", 3_200)).toBeUndefined();
  expect(reader.read("constructor", 3_300)).toBeUndefined();
});

test("a page's own keys mean something after all others, and alone", () => {
  const run = () => undefined;
  const reader = new ShortcutReader((keys) => (keys === "e" || keys === "j" ? { run } : undefined));
  expect(reader.read("e", 0)).toEqual({ run });
  expect(reader.read("j", 100)).toBe("down");
  reader.read("g", 200);
  expect(reader.read("e", 300)).not.toEqual({ run });
});

test("keys are the page's unless somebody types, holds a modifier, or a dialog is open", () => {
  expect(heardFrom("<a data-here>a link</a>")).toBe(true);
  expect(heardFrom("<input type=checkbox data-here>")).toBe(true);
  for (const control of ["<input data-here>", "<textarea data-here></textarea>", "<select data-here></select>"]) {
    expect(heardFrom(control), control).toBe(false);
  }
  expect(heardFrom("<a data-here>a link</a>", press("j", { ctrlKey: true }))).toBe(false);
  expect(heardFrom("<a data-here>a link</a>", press("j", { isComposing: true }))).toBe(false);
  expect(heardFrom("<div role=dialog></div><a data-here>a link</a>")).toBe(false);
});

test("the palette opens with Ctrl or with the command key", () => {
  expect(isPaletteShortcut(press("k", { ctrlKey: true }))).toBe(true);
  expect(isPaletteShortcut(press("K", { metaKey: true }))).toBe(true);
  expect(isPaletteShortcut(press("k"))).toBe(false);
});
