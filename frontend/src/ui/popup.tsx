import { type ReactNode, useEffect, useRef, useState } from "react";
import { cx } from "@/lib/cx";

interface PopupProps {
  label: ReactNode;
  icon: ReactNode;
  /** On a phone: as wide as the page, below the nearest positioned ancestor. */
  wide?: boolean;
  /** Classes of the button and of the panel in place of the usual ones. */
  look?: { button: string; panel: string };
  /** Whether the open page is one that the panel leads to. */
  current?: boolean | undefined;
  children: ReactNode;
}

const BUTTON = cx(
  "h-9 gap-1.5 rounded-lg px-2.5 text-sm font-medium text-muted [&>svg]:size-4",
  "hover:bg-sunken hover:text-ink group-open:bg-sunken group-open:text-ink",
);

/** A panel below its button, rendered when it opens. Escape, a press elsewhere, or following a link closes it. */
export function Popup({ label, icon, wide, look, current, children }: PopupProps) {
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
        aria-current={current || undefined}
        className={cx(
          "relative flex list-none items-center [&::-webkit-details-marker]:hidden",
          look?.button ?? BUTTON,
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
          "absolute top-full z-20 mt-1 max-w-[calc(100vw-2rem)] rounded-lg border bg-surface shadow-lg",
          look?.panel ?? (wide ? "right-0 w-96 p-2 max-sm:inset-x-4 max-sm:w-auto" : "right-0 w-64 p-2"),
        )}
      >
        {open && children}
      </div>
    </details>
  );
}
