import { type ReactNode, useEffect, useRef, useState } from "react";
import { cx } from "@/lib/cx";

interface PopupProps {
  label: ReactNode;
  icon: ReactNode;
  /** On a phone: as wide as the page, below the nearest positioned ancestor. */
  wide?: boolean;
  children: ReactNode;
}

/** A panel below its button, rendered when it opens. Escape, a press elsewhere, or following a link closes it. */
export function Popup({ label, icon, wide, children }: PopupProps) {
  const ref = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const close = (event: Event) => {
      const box = ref.current;
      if (!box?.open) return;
      if (event instanceof KeyboardEvent) {
        if (event.key !== "Escape") return;
        box.querySelector("summary")?.focus();
      } else if (box.contains(event.target as Node)) return;
      box.open = false;
    };
    addEventListener("keydown", close);
    addEventListener("pointerdown", close);
    return () => {
      removeEventListener("keydown", close);
      removeEventListener("pointerdown", close);
    };
  }, []);
  return (
    <details
      ref={ref}
      className={cx("group", wide ? "sm:relative" : "relative")}
      onToggle={({ currentTarget }) => setOpen(currentTarget.open)}
    >
      <summary
        className={cx(
          "relative flex h-9 list-none items-center gap-1.5 rounded-lg px-2.5 text-sm font-medium text-muted",
          "hover:bg-sunken hover:text-ink group-open:bg-sunken group-open:text-ink [&>svg]:size-4",
          "[&::-webkit-details-marker]:hidden",
        )}
      >
        {icon}
        {label}
      </summary>
      <div
        onClick={({ target }) => {
          if (ref.current && (target as Element).closest("a")) ref.current.open = false;
        }}
        className={cx(
          "absolute top-full right-0 z-20 mt-1 max-w-[calc(100vw-2rem)] rounded-lg border bg-surface p-2 shadow-lg",
          wide ? "w-96 max-sm:inset-x-4 max-sm:w-auto" : "w-64",
        )}
      >
        {open && children}
      </div>
    </details>
  );
}
