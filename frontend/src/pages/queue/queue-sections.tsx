import { useTranslation } from "react-i18next";
import { SectionNav } from "@/ui/section-nav";

export function QueueSections() {
  const { t } = useTranslation();
  return (
    <SectionNav
      label={t("queue.sections")}
      links={[
        { to: "/queue", label: t("queue.title") },
        { to: "/queue/timeline", label: t("app.timeline") },
        { to: "/queue/reservations", label: t("app.reservations") },
      ]}
    />
  );
}
