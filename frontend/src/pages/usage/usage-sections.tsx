import { useTranslation } from "react-i18next";
import { SectionNav } from "@/ui/section-nav";

export function UsageSections() {
  const { t } = useTranslation();
  return (
    <SectionNav
      label={t("usage.sections")}
      links={[
        { to: "/usage", label: t("usage.title") },
        { to: "/usage/prices", label: t("prices.title") },
      ]}
    />
  );
}
