import { FURTHER_PAGES, PAGES } from "./pages";

/** What a key, or two after one another, does. `go` is an address, `run` something of the page that is open; the other
 * deeds are the keyboard's. */
export type Deed = { go: string } | { run: () => unknown } | "palette" | "help" | "search" | "down" | "up" | "tick";

export const DEEDS: Record<string, Deed> = {
  ...Object.fromEntries(
    [...PAGES, ...FURTHER_PAGES].filter(({ key }) => key).map(({ to, key }) => [`g ${key}`, { go: to }]),
  ),
  c: { go: "/training/create" },
  "/": "search",
  j: "down",
  k: "up",
  x: "tick",
  "?": "help",
};

/** How long the second key may take. */
const PAUSE_MS = 1_500;

/** Puts keys together to what they mean. */
export class KeyReader {
  private first = "";
  private firstAt = 0;

  /** `ofPage`: what keys mean on the page that is open, and nowhere else. */
  constructor(private readonly ofPage: (keys: string) => Deed | undefined = () => undefined) {}

  read(key: string, at: number): Deed | undefined {
    const keys = this.first && at - this.firstAt < PAUSE_MS ? `${this.first} ${key}` : key;
    this.first = "";
    const deed = Object.hasOwn(DEEDS, keys) ? DEEDS[keys] : this.ofPage(keys);
    if (!deed && key === "g") {
      this.first = key;
      this.firstAt = at;
    }
    return deed;
  }
}

type Press = Pick<
  KeyboardEvent,
  "key" | "ctrlKey" | "metaKey" | "altKey" | "isComposing" | "defaultPrevented" | "target"
>;

export function opensPalette({ key, ctrlKey, metaKey, altKey }: Press): boolean {
  return (ctrlKey || metaKey) && !altKey && key.toLowerCase() === "k";
}

/** Whether a key is meant for the page: nobody types, nothing else has taken it, and no dialog is open. */
export function isForPage({ ctrlKey, metaKey, altKey, isComposing, defaultPrevented, target }: Press): boolean {
  if (ctrlKey || metaKey || altKey || isComposing || defaultPrevented) return false;
  const typing =
    target instanceof HTMLElement &&
    (target.isContentEditable || target.closest("textarea, select, input:not([type=checkbox], [type=radio])"));
  return !typing && !document.querySelector('[role="dialog"], [role="alertdialog"]');
}

const rows = () =>
  [...document.querySelectorAll<HTMLElement>("main tbody tr, main [data-row]")].filter((row) => row.querySelector("a"));

const rowAt = () => document.activeElement?.closest<HTMLElement>("tr, [data-row]") ?? undefined;

/** To the next row of the list on the page, or the one before; from nowhere to the first. */
export function moveInList(by: 1 | -1): void {
  const all = rows();
  const at = rowAt();
  const index = at ? all.indexOf(at) + by : 0;
  all[Math.max(0, Math.min(all.length - 1, index))]?.querySelector<HTMLElement>("a")?.focus();
}

export function tickInList(): void {
  rowAt()?.querySelector<HTMLElement>("input[type=checkbox]:enabled")?.click();
}

/** False where the page has nothing to search in. */
export function focusSearch(): boolean {
  const box = document.querySelector<HTMLInputElement>("main input[type=search]");
  box?.focus();
  box?.select();
  return box !== null;
}
