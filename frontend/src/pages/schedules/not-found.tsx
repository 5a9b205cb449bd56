import { useTranslation } from "react-i18next";
import { ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { Page } from "@/ui/page";

export function ScheduleNotFound() {
  const { t } = useTranslation();
  return (
    <Page title={t("schedule.notFound")}>
      <EmptyState title={t("schedule.notFound")} hint={t("schedule.notFoundHint")}>
        <ButtonLink look="primary" to="/schedules">
          {t("app.schedules")}
        </ButtonLink>
      </EmptyState>
    </Page>
  );
}
