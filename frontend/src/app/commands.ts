import { useEffect } from "react";

/** Something that can be done from the palette. */
export interface Command {
  id: string;
  label: string;
  /** What tells it from another of the same name. */
  detail?: string;
  /** What it is found by besides its label. */
  also?: string;
  /** The keys that do the same. */
  keys?: string;
  /** Asked before it is done. */
  confirm?: string;
  run: () => unknown;
}

const pageCommands = new Set<readonly Command[]>();

/** What the page that is open offers. */
export const getPageCommands = (): readonly Command[] => [...pageCommands].flat();

export function usePageCommands(commands: readonly Command[]): void {
  useEffect(() => {
    pageCommands.add(commands);
    return () => void pageCommands.delete(commands);
  }, [commands]);
}
