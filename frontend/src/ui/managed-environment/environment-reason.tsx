import type { ManagedEnvironment } from "@/api/managed-environments";
import { cx } from "@/lib/cx";

/** What it is at, or why it is so and what to do, in a line or two. */
export function EnvironmentReason({ hosted, className }: { hosted: ManagedEnvironment; className?: string }) {
  const said = hosted.doing ?? hosted.reason;
  if (!said) return null;
  const hint = hosted.doing ? "" : hosted.reason?.hint;
  const bad = said === hosted.reason && hosted.state === "failed";
  return (
    <div className={cx("text-xs break-words", bad ? "text-bad-ink" : "text-muted", className)}>
      <div>{said.message}</div>
      {hint && <div className="text-muted">{hint}</div>}
    </div>
  );
}
