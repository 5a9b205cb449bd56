import { type ReactNode, useId } from "react";
import { cx } from "@/lib/cx";

interface Wiring {
  id: string;
  "aria-invalid": boolean | undefined;
  "aria-describedby": string | undefined;
}

interface FieldProps {
  label: string;
  hint?: ReactNode;
  error?: ReactNode;
  className?: string;
  children: (wiring: Wiring) => ReactNode;
}

/** A label, a control, and its error or hint. */
export function Field({ label, hint, error, className, children }: FieldProps) {
  const id = useId();
  const below = error ?? hint;
  return (
    <div className={cx("min-w-0 space-y-1.5", className)}>
      <label htmlFor={id} className="block text-sm font-medium">
        {label}
      </label>
      {children({
        id,
        "aria-invalid": error ? true : undefined,
        "aria-describedby": below ? `${id}-below` : undefined,
      })}
      {below && (
        <div id={`${id}-below`} className={cx("text-sm", error ? "text-bad-ink" : "text-muted")}>
          {below}
        </div>
      )}
    </div>
  );
}
