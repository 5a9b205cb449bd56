import { flushSync } from "react-dom";

/** Opens the tab that contains the control. */
function openTab(control: HTMLElement): void {
  const name = control.closest("[role=tabpanel]")?.getAttribute("aria-labelledby");
  if (name) flushSync(() => document.getElementById(name)?.focus());
}

/**
 * Scrolls to the control of that name, or the nearest that contains it, and focuses it. `shared`: names of controls by
 * those of fields that share them.
 */
export function focusNamedControl(form: HTMLFormElement, name: string, shared: Record<string, string> = {}): void {
  const controls = [...form.elements].filter((each) => each instanceof HTMLElement) as (HTMLElement & {
    name?: string;
  })[];
  for (let wanted = name; wanted; wanted = wanted.slice(0, Math.max(wanted.lastIndexOf("."), 0))) {
    const control = controls.find((each) => each.name === (shared[wanted] ?? wanted));
    if (!control) continue;
    for (let fold = control.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null)
      fold.open = true;
    openTab(control);
    control.focus();
    control.scrollIntoView({ block: "center" });
    return;
  }
}
