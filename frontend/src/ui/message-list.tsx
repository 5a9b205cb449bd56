import { Check, Info, TriangleAlert, X } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { cx } from "@/lib/cx";

export interface Message {
  id: string;
  level: Severity;
  message: ReactNode;
  hint?: ReactNode;
  /** What can be done about it. */
  action?: ReactNode;
}

const WORST_FIRST = ["fail", "warn", "info", "pass"] as const;
type Severity = (typeof WORST_FIRST)[number];

const SEVERITY_STYLE: Record<Severity, { icon: ReactNode; ink: string }> = {
  fail: { icon: <X />, ink: "text-bad-ink" },
  warn: { icon: <TriangleAlert />, ink: "text-warn-ink" },
  info: { icon: <Info />, ink: "text-info-ink" },
  pass: { icon: <Check />, ink: "text-ok-ink" },
};

interface NotesProps {
  notes: Message[];
  label?: string;
  /** More are shown on demand. */
  most?: number;
}

/** Messages, the worst first, each with a sign of its severity. */
export function MessageList({ notes, label, most = Infinity }: NotesProps) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const sorted = notes.toSorted((one, other) => WORST_FIRST.indexOf(one.level) - WORST_FIRST.indexOf(other.level));
  const shown = all ? sorted : sorted.slice(0, most);
  if (notes.length === 0) return null;
  return (
    <ul aria-label={label} className="divide-y rounded-lg border bg-surface text-sm">
      {shown.map(({ id, level, message, hint, action }) => (
        <li key={id} className="flex items-start gap-2.5 px-3 py-2">
          <span className={cx("mt-0.5 shrink-0 [&>svg]:size-4", SEVERITY_STYLE[level].ink)}>
            <span className="sr-only">{t(`level.${level}`)}</span>
            {SEVERITY_STYLE[level].icon}
          </span>
          <div className="min-w-0 flex-1 break-words">
            <div>{message}</div>
            {hint && <div className="text-muted">{hint}</div>}
          </div>
          {action}
        </li>
      ))}
      {shown.length < sorted.length && (
        <li className="px-3 py-1.5">
          <button
            type="button"
            className="rounded font-medium text-accent-ink hover:underline"
            onClick={() => setAll(true)}
          >
            {t("level.rest", { count: sorted.length - shown.length })}
          </button>
        </li>
      )}
    </ul>
  );
}
