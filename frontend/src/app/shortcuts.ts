import { OTHER_PAGES, NAV_PAGES } from "./pages";

/**
 * The effect of a key, or of two after one another. `go` is an address, `run` a command of the open page; the others
 * are handled by the palette's button.
 */
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

/** The longest pause before the second key. */
const MAX_PAUSE_MS = 1_500;

/** Turns keys into actions. */
export class ShortcutReader {
  private first = "";
  private firstAt = 0;

  /** `ofPage` returns the action of keys on the open page. */
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

/**
 * Returns whether a key is a shortcut: no text field has the focus, nothing has handled the key, and no dialog is open.
 */
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

/** Moves the focus to the next or previous row of the page's list; at first to its first row. */
export function moveListFocus(by: 1 | -1): void {
  const all = listRows();
  const at = getFocusedRow();
  const index = at ? all.indexOf(at) + by : 0;
  all[Math.max(0, Math.min(all.length - 1, index))]?.querySelector<HTMLElement>("a")?.focus();
}

export function toggleFocusedRow(): void {
  getFocusedRow()?.querySelector<HTMLElement>("input[type=checkbox]:enabled")?.click();
}

/** Focuses the search box. Returns false if the page has none. */
export function focusSearchBox(): boolean {
  const box = document.querySelector<HTMLInputElement>("main input[type=search], main input[role=combobox]");
  box?.focus();
  box?.select();
  return box !== null;
}
