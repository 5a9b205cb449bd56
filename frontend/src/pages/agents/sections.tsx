import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { openProposalsQuery } from "@/api/agents";
import { SectionNav } from "@/ui/section-nav";

/** Links between the agents and their proposals. */
export function Sections() {
  const { t } = useTranslation();
  const open = useQuery(openProposalsQuery).data ?? 0;
  return (
    <SectionNav
      label={t("app.agents")}
      links={[
        { to: "/agents", label: t("app.agents") },
        {
          to: "/agents/proposals",
          label: open > 0 ? t("agents.proposalsOpen", { count: open }) : t("agents.proposals"),
        },
      ]}
    />
  );
}
