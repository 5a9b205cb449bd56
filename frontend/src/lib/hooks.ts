import { useEffect, useRef, useState } from "react";
import { useLocation } from "react-router";

/** Milliseconds, moving once a second while something on the page is counting. */
export function useNow(counting = true): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!counting) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [counting]);
  return now;
}

/** `value` once it has been still for `ms`. */
export function useDebounced<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** For something that an address with `#id` leads to: it takes the focus once it is there. */
export function useFocusOnHash(id: string | undefined) {
  const { hash } = useLocation();
  const ref = useRef<HTMLElement>(null);
  const wanted = id !== undefined && decodeURIComponent(hash.slice(1)) === id;
  useEffect(() => {
    if (wanted) ref.current?.focus();
  }, [wanted]);
  return id === undefined ? {} : { id, ref, tabIndex: -1 };
}
