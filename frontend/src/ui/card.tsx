import type { ReactNode } from "react";
import { cx } from "@/lib/cx";
import { useFocusOnHash } from "@/lib/hooks";

interface CardProps {
  /** The target of addresses that end in `#id`. */
  id?: string;
  title?: ReactNode;
  aside?: ReactNode;
  className?: string;
  children: ReactNode;
}

export function Card({ id, title, aside, className, children }: CardProps) {
  const arrival = useFocusOnHash(id);
  return (
    <section {...arrival} className={cx("min-w-0 scroll-mt-20 rounded-xl border bg-surface shadow-xs", className)}>
      {title && (
        <header className="flex flex-wrap items-center justify-between gap-x-3 gap-y-2 px-4 pt-3.5">
          <h2 className="text-base font-semibold">{title}</h2>
          {aside}
        </header>
      )}
      <div className="p-4">{children}</div>
    </section>
  );
}
