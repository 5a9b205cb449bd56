import { Check, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { Button } from "./button";

/** The result for one task; with its name, as the list may no longer show it. */
export interface BulkResult {
  id: string;
  name: string;
  ok: boolean;
  message: string;
}

/** An action on several tasks; `tag` and `untag`, `archive` and `unarchive` are those of runs. */
export type BulkDeed = "stop" | "delete" | "tag" | "untag" | "archive" | "unarchive";

interface BulkResultsProps {
  outcomes: BulkResult[];
  /** The action that the results are of. */
  action: BulkDeed;
  isPending: boolean;
  onClose: () => void;
}

/** The result for each selected task, until it is closed: the rows may leave a filtered list. */
export function BulkResults({ outcomes, action, isPending, onClose }: BulkResultsProps) {
  const { t } = useTranslation();
  if (outcomes.length === 0) return null;
  const failed = outcomes.filter(({ ok }) => !ok).length;
  return (
    <section
      aria-label={t(`bulk.${action}.result`)}
      className="mb-4 rounded-xl border bg-surface px-4 py-3 text-sm shadow-xs"
    >
      <div className="flex items-center justify-between gap-2">
        <p role="status" className="font-medium">
          {t(`bulk.${action}.done`, { count: outcomes.length - failed })}
          {failed > 0 && <span className="text-bad-ink">{t(`bulk.${action}.refused`, { count: failed })}</span>}
        </p>
        <Button look="ghost" size="icon" aria-label={t("app.close")} disabled={isPending} onClick={onClose}>
          <X />
        </Button>
      </div>
      <ul className="mt-1 max-h-48 space-y-1 overflow-auto">
        {outcomes.map(({ id, name, ok, message }) => (
          <li key={id} className="flex flex-wrap items-center gap-x-2">
            {ok ? (
              <Check aria-hidden className="size-4 text-ok-ink" />
            ) : (
              <X aria-hidden className="size-4 text-bad-ink" />
            )}
            {ok && action === "delete" ? (
              <span className="font-medium">{name}</span>
            ) : (
              <Link to={`/training/${id}`} className="font-medium hover:text-accent-ink hover:underline">
                {name}
              </Link>
            )}
            <span className={ok ? "text-muted" : "text-bad-ink"}>{message}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
