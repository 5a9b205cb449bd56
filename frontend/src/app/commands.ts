import { useEffect } from "react";

/** A command of the palette. */
export interface Command {
  id: string;
  label: string;
  /** Distinguishes commands of the same name. */
  detail?: string;
  /** Further words by which it is found. */
  also?: string;
  /** Its keyboard shortcut. */
  keys?: string;
  /** A question to confirm first. */
  confirm?: string;
  run: () => unknown;
}

const pageCommands = new Set<readonly Command[]>();

/** Returns the commands of the open page. */
export const getPageCommands = (): readonly Command[] => [...pageCommands].flat();

export function usePageCommands(commands: readonly Command[]): void {
  useEffect(() => {
    pageCommands.add(commands);
    return () => void pageCommands.delete(commands);
  }, [commands]);
}
