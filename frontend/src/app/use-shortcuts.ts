import { useLocalStorage } from "@/lib/use-local-storage";

export const PALETTE_KEYS = /Mac|iPhone|iPad/.test(navigator.userAgent) ? "⌘K" : "Ctrl K";

/**
 * Returns whether keyboard shortcuts are on, and a setter. They are on by default; the choice is kept in this browser.
 */
export function useShortcuts(): [boolean, (on: boolean) => void] {
  const [value, remember] = useLocalStorage("shortcuts");
  return [value !== "off", (on) => remember(on ? null : "off")];
}
