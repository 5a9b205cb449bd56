import { useEffect, useRef, useState } from "react";
import { useLocation } from "react-router";

/** Returns the current time in milliseconds, updated once a second while `counting`. */
export function useNow(counting = true): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!counting) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [counting]);
  return now;
}

/** Returns `value` once it has not changed for `ms`. */
export function useDebounced<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** Returns a ref whose element takes the focus if the address ends in its `#id`. */
export function useFocusOnHash(id: string | undefined) {
  const { hash } = useLocation();
  const ref = useRef<HTMLElement>(null);
  const wanted = id !== undefined && decodeURIComponent(hash.slice(1)) === id;
  useEffect(() => {
    if (wanted) ref.current?.focus();
  }, [wanted]);
  return id === undefined ? {} : { id, ref, tabIndex: -1 };
}
