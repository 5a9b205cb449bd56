import { OTHER_PAGES, NAV_PAGES } from "./pages";

/** What a key, or two after one another, does. `go` is an address, `run` something of the page that is open; the other
 * deeds are the keyboard's. */
export type ShortcutAction =
  { go: string } | { run: () => unknown } | "palette" | "help" | "search" | "down" | "up" | "tick";

export const SHORTCUTS: Record<string, ShortcutAction> = {
  ...Object.fromEntries(
    [...NAV_PAGES, ...OTHER_PAGES].filter(({ key }) => key).map(({ to, key }) => [`g ${key}`, { go: to }]),
  ),
  c: { go: "/training/create" },
  "/": "search",
  j: "down",
  k: "up",
  x: "tick",
  "?": "help",
};

/** How long the second key may take. */
const MAX_PAUSE_MS = 1_500;

/** Puts keys together to what they mean. */
export class ShortcutReader {
  private first = "";
  private firstAt = 0;

  /** `ofPage`: what keys mean on the page that is open, and nowhere else. */
  constructor(private readonly ofPage: (keys: string) => ShortcutAction | undefined = () => undefined) {}

  read(key: string, at: number): ShortcutAction | undefined {
    const keys = this.first && at - this.firstAt < MAX_PAUSE_MS ? `${this.first} ${key}` : key;
    this.first = "";
    const deed = Object.hasOwn(SHORTCUTS, keys) ? SHORTCUTS[keys] : this.ofPage(keys);
    if (!deed && key === "g") {
      this.first = key;
      this.firstAt = at;
    }
    return deed;
  }
}

type KeyPress = Pick<
  KeyboardEvent,
  "key" | "ctrlKey" | "metaKey" | "altKey" | "isComposing" | "defaultPrevented" | "target"
>;

export function isPaletteShortcut({ key, ctrlKey, metaKey, altKey }: KeyPress): boolean {
  return (ctrlKey || metaKey) && !altKey && key.toLowerCase() === "k";
}

/** Whether a key is meant for the page: nobody types, nothing else has taken it, and no dialog is open. */
export function isPageShortcut({ ctrlKey, metaKey, altKey, isComposing, defaultPrevented, target }: KeyPress): boolean {
  if (ctrlKey || metaKey || altKey || isComposing || defaultPrevented) return false;
  const typing =
    target instanceof HTMLElement &&
    (target.isContentEditable || target.closest("textarea, select, input:not([type=checkbox], [type=radio])"));
  return !typing && !document.querySelector('[role="dialog"], [role="alertdialog"]');
}

const listRows = () =>
  [...document.querySelectorAll<HTMLElement>("main tbody tr, main [data-row]")].filter((row) => row.querySelector("a"));

const getFocusedRow = () => document.activeElement?.closest<HTMLElement>("tr, [data-row]") ?? undefined;

/** To the next row of the list on the page, or the one before; from nowhere to the first. */
export function moveListFocus(by: 1 | -1): void {
  const all = listRows();
  const at = getFocusedRow();
  const index = at ? all.indexOf(at) + by : 0;
  all[Math.max(0, Math.min(all.length - 1, index))]?.querySelector<HTMLElement>("a")?.focus();
}

export function toggleFocusedRow(): void {
  getFocusedRow()?.querySelector<HTMLElement>("input[type=checkbox]:enabled")?.click();
}

/** False where the page has nothing to search in. */
export function focusSearchBox(): boolean {
  const box = document.querySelector<HTMLInputElement>("main input[type=search]");
  box?.focus();
  box?.select();
  return box !== null;
}
