import { useSyncExternalStore } from "react";

/** Returns a value of this browser's local storage, and a setter; null removes it. */
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useLocalStorage(name: string): [string | null, (value: string | null) => void] {
  const key = `fermi.${name}`;
  const value = useSyncExternalStore(subscribe, () => localStorage.getItem(key));
  const remember = (next: string | null) => {
    if (next === null) localStorage.removeItem(key);
    else localStorage.setItem(key, next);
    listeners.forEach((listener) => listener());
  };
  return [value, remember];
}
