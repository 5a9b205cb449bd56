import { cx } from "@/lib/cx";

interface ProgressProps {
  label: string;
  /** From 0 to 1. */
  value: number;
  /** For a row of a list. */
  small?: boolean;
}

export function ProgressBar({ label, value, small }: ProgressProps) {
  const percent = Math.floor(value * 100);
  return (
    <div
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent}
      className={cx("overflow-hidden rounded-full bg-sunken", small ? "h-1" : "h-2")}
    >
      <div className="h-full rounded-full bg-accent transition-[width]" style={{ width: `${value * 100}%` }} />
    </div>
  );
}
