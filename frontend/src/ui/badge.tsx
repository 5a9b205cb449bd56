import type { ReactNode } from "react";
import { cx } from "@/lib/cx";

export type Tone = "ok" | "warn" | "bad" | "info" | "accent" | "idle";

const TONE_CLASSES: Record<Tone, string> = {
  ok: "border-ok-line bg-ok-soft text-ok-ink",
  warn: "border-warn-line bg-warn-soft text-warn-ink",
  bad: "border-bad-line bg-bad-soft text-bad-ink",
  info: "border-info-line bg-info-soft text-info-ink",
  accent: "border-accent-line/40 bg-accent-soft text-accent-ink",
  idle: "border-line bg-sunken text-muted",
};

export function Badge({ tone = "idle", title, children }: { tone?: Tone; title?: string; children: ReactNode }) {
  return (
    <span
      title={title}
      className={cx(
        "inline-flex shrink-0 items-center gap-1 rounded-md border px-1.5 py-px text-xs font-medium whitespace-nowrap",
        TONE_CLASSES[tone],
      )}
    >
      {children}
    </span>
  );
}

/** A coloured box with a message. */
export function Callout({ tone, children, role }: { tone: Tone; children: ReactNode; role?: "alert" | "status" }) {
  return (
    <div role={role} className={cx("rounded-lg border px-3 py-2 text-sm break-words", TONE_CLASSES[tone])}>
      {children}
    </div>
  );
}
