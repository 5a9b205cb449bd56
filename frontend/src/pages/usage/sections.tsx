import { useTranslation } from "react-i18next";
import { Sections } from "@/ui/sections";

export function UsageSections() {
  const { t } = useTranslation();
  return (
    <Sections
      label={t("usage.sections")}
      links={[
        { to: "/usage", label: t("usage.title") },
        { to: "/usage/prices", label: t("prices.title") },
      ]}
    />
  );
}
