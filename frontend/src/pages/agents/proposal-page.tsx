import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { useParams } from "react-router";
import { proposalQuery } from "@/api/agents";
import { ButtonLink } from "@/ui/button";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { ProposalCard } from "./proposal-card";
import { Sections } from "./sections";

/** One proposal, as notices and refused agents name it. */
export function Component() {
  const { id = "" } = useParams();
  const { t } = useTranslation();
  const proposal = useQuery(proposalQuery(id));
  return (
    <Page
      title={t("agents.proposal")}
      actions={<ButtonLink to="/agents/proposals">{t("agents.proposals")}</ButtonLink>}
    >
      <Sections />
      {proposal.isError && <LoadError error={proposal.error} retry={() => void proposal.refetch()} />}
      {proposal.isPending && <Loading />}
      {proposal.data && (
        <div className="max-w-5xl">
          <ProposalCard proposal={proposal.data} />
        </div>
      )}
    </Page>
  );
}
