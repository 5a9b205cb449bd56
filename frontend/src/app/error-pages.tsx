import { useTranslation } from "react-i18next";
import { useRouteError } from "react-router";
import { Button, ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { Page } from "@/ui/page";

/**
 * Shown for a page that threw, or whose chunk is gone because a newer console was installed. Reloading helps with both.
 */
export function CrashPage() {
  const { t } = useTranslation();
  const error = useRouteError();
  return (
    <EmptyState title={t("app.crashed")} hint={error instanceof Error ? error.message : undefined}>
      <Button look="primary" onClick={() => location.reload()}>
        {t("app.reload")}
      </Button>
    </EmptyState>
  );
}

/** Shown to users who opened the operators' console without the right to do so; Django sends them here. */
export function OperatorsOnlyPage() {
  const { t } = useTranslation();
  return (
    <Page title={t("app.operatorsOnly")}>
      <EmptyState title={t("app.operatorsOnly")} hint={t("app.operatorsOnlyHint")}>
        <ButtonLink look="primary" to="/training">
          {t("app.backToTasks")}
        </ButtonLink>
      </EmptyState>
    </Page>
  );
}

export function NotFoundPage() {
  const { t } = useTranslation();
  return (
    <Page title={t("app.notFound")}>
      <EmptyState title={t("app.notFound")} hint={t("app.notFoundHint")}>
        <ButtonLink look="primary" to="/training">
          {t("app.backToTasks")}
        </ButtonLink>
      </EmptyState>
    </Page>
  );
}
