import { cx } from "@/lib/cx";
import { useTranslation } from "react-i18next";
import type { TFunction } from "i18next";
import { toast } from "./toast";
import { ApiError } from "@/api/errors";
import { Callout } from "./badge";
import { Button } from "./button";

export function describeError(t: TFunction, error: unknown): string {
  return error instanceof ApiError ? error.message : t("app.offline");
}

/** What was refused, what to do about it, and by which request. */
export function toastError(t: TFunction, error: unknown): void {
  const hints = error instanceof ApiError ? error.problems.map(({ hint }) => hint) : [];
  const told = [...new Set(hints), requestOf(t, error)].filter(Boolean);
  toast.error(describeError(t, error), { description: told.length > 0 ? told.join(" ") : undefined });
}

/** By which the platform's log knows what was refused. */
function requestOf(t: TFunction, error: unknown): string | undefined {
  const id = error instanceof ApiError ? error.requestId : undefined;
  return id && t("app.requestId", { id });
}

/** What was refused, and by which request. */
export function ErrorMessage({ error }: { error: unknown }) {
  const { t } = useTranslation();
  const request = requestOf(t, error);
  return (
    <span>
      {describeError(t, error)}
      {request && <span className="ml-2 font-mono text-xs select-all">{request}</span>}
    </span>
  );
}

/** In place of what could not be loaded. */
export function LoadError({ error, retry }: { error: unknown; retry: () => void }) {
  const { t } = useTranslation();
  return (
    <Callout tone="bad" role="alert">
      <div className="flex flex-wrap items-center justify-between gap-2">
        <ErrorMessage error={error} />
        <Button size="sm" onClick={retry}>
          {t("app.retryLoad")}
        </Button>
      </div>
    </Callout>
  );
}

/** `tall`: keeps the place of charts, so that what is below them does not move. */
export function Loading({ tall = false }: { tall?: boolean }) {
  const { t } = useTranslation();
  return (
    <div role="status" className={cx("p-8 text-center text-sm text-muted", tall && "min-h-144")}>
      {t("app.loading")}
    </div>
  );
}
