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

const present = new Set<readonly Command[]>();

/** What the page that is open offers. */
export const presentCommands = (): readonly Command[] => [...present].flat();

export function useCommands(commands: readonly Command[]): void {
  useEffect(() => {
    present.add(commands);
    return () => void present.delete(commands);
  }, [commands]);
}
