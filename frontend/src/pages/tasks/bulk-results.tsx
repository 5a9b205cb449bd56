import { Check, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { Button } from "@/ui/button";
import type { BulkActions } from "./use-bulk-actions";

/** The result for each selected task, until it is closed: the rows may leave a filtered list. */
export function BulkResults({ bulk: { outcomes, action, isPending, forget } }: { bulk: BulkActions }) {
  const { t } = useTranslation();
  if (outcomes.length === 0) return null;
  const failed = outcomes.filter(({ ok }) => !ok).length;
  return (
    <section
      aria-label={t(`tasks.${action}Result`)}
      className="mb-4 rounded-xl border bg-surface px-4 py-3 text-sm shadow-xs"
    >
      <div className="flex items-center justify-between gap-2">
        <p role="status" className="font-medium">
          {t(`tasks.${action}Asked`, { count: outcomes.length - failed })}
          {failed > 0 && <span className="text-bad-ink">{t(`tasks.${action}Refused`, { count: failed })}</span>}
        </p>
        <Button look="ghost" size="icon" aria-label={t("app.close")} disabled={isPending} onClick={forget}>
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
