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

/** Shows an error with what to do and the request's id. */
export function toastError(t: TFunction, error: unknown): void {
  const hints = error instanceof ApiError ? error.problems.map(({ hint }) => hint) : [];
  const text = [...new Set(hints), formatRequestId(t, error)].filter(Boolean);
  toast.error(describeError(t, error), { description: text.length > 0 ? text.join(" ") : undefined });
}

/** Returns the request id, for the platform's log. */
function formatRequestId(t: TFunction, error: unknown): string | undefined {
  const id = error instanceof ApiError ? error.requestId : undefined;
  return id && t("app.requestId", { id });
}

/** An error with the request's id. */
export function ErrorMessage({ error }: { error: unknown }) {
  const { t } = useTranslation();
  const request = formatRequestId(t, error);
  return (
    <span>
      {describeError(t, error)}
      {request && <span className="ml-2 font-mono text-xs select-all">{request}</span>}
    </span>
  );
}

/** Shown instead of data that could not be loaded, with a button to retry. */
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

/** `tall` reserves the height of charts, so that what is below does not move. */
export function Loading({ tall = false }: { tall?: boolean }) {
  const { t } = useTranslation();
  return (
    <div role="status" className={cx("p-8 text-center text-sm text-muted", tall && "min-h-144")}>
      {t("app.loading")}
    </div>
  );
}
