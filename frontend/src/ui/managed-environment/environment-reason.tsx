import type { ManagedEnvironment } from "@/api/managed-environments";
import { cx } from "@/lib/cx";

/** What the environment is doing, or the reason for its state and what to do. */
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
