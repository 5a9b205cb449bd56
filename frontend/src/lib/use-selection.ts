import { useState } from "react";

/** Returns the selected ids among those that can be selected now, with the functions that change them. */
export function useSelection(ids: string[]) {
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const selected = ids.filter((id) => ticked.has(id));
  return {
    ids,
    selected,
    all: selected.length > 0 && selected.length === ids.length,
    clear: () => setTicked(new Set()),
    toggle: (id: string) => {
      const next = new Set(ticked);
      if (!next.delete(id)) next.add(id);
      setTicked(next);
    },
    /** Selects several, or none of them. */
    select: (several: string[], wanted: boolean) => {
      const next = new Set(ticked);
      for (const id of several) {
        if (wanted) next.add(id);
        else next.delete(id);
      }
      setTicked(next);
    },
    toggleAll: () => setTicked(new Set(selected.length === ids.length ? [] : ids)),
  };
}

export type Selection = ReturnType<typeof useSelection>;
