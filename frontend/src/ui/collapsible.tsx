import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import { cx } from "@/lib/cx";

interface FoldProps {
  title: ReactNode;
  /** Opens when this becomes true; closing is up to the user. */
  wanted: boolean;
  className?: string;
  summaryClassName?: string;
  children?: ReactNode;
  /** Content that is rendered only when open. */
  whenOpen?: () => ReactNode;
}

/** A section that opens and closes under its title. */
export function Collapsible({ title, wanted, className, summaryClassName, children, whenOpen }: FoldProps) {
  const [open, setOpen] = useState(wanted);
  const [was, setWas] = useState(wanted);
  if (was !== wanted) {
    setWas(wanted);
    if (wanted) setOpen(true);
  }
  return (
    <details className={className} open={open} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary className={cx("flex items-center gap-2 rounded-lg", summaryClassName)}>
        <ChevronRight aria-hidden className={cx("size-4 shrink-0 transition-transform", open && "rotate-90")} />
        {title}
      </summary>
      {children}
      {open && whenOpen?.()}
    </details>
  );
}
