import { cx } from "@/lib/cx";

interface MeterProps {
  label: string;
  /** In words: "12 of 16". */
  text: string;
  /** A share from 0, which may exceed 1. */
  value: number;
  /** A threshold from 0 to 1. */
  mark?: number;
  tone?: "ok" | "warn" | "bad";
}

const FILL = { ok: "bg-accent", warn: "bg-warn", bad: "bg-bad" };

/** The used share of something. */
export function Meter({ label, text, value, mark, tone = "ok" }: MeterProps) {
  return (
    <div
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.min(100, Math.round(value * 100))}
      aria-valuetext={text}
      className="relative h-2 overflow-hidden rounded-full bg-sunken"
    >
      <div className={cx("h-full rounded-full", FILL[tone])} style={{ width: `${Math.min(1, value) * 100}%` }} />
      {mark !== undefined && <div className="absolute inset-y-0 w-0.5 bg-ink" style={{ left: `${mark * 100}%` }} />}
    </div>
  );
}
