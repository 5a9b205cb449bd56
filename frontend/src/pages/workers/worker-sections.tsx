import { useTranslation } from "react-i18next";
import { SectionNav } from "@/ui/section-nav";

export function WorkerSections() {
  const { t } = useTranslation();
  return (
    <SectionNav
      label={t("workers.sections")}
      links={[
        { to: "/workers", label: t("workers.title") },
        { to: "/workers/groups", label: t("workers.groups") },
        { to: "/workers/join-tokens", label: t("workers.joinTokens") },
      ]}
    />
  );
}
