import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { type AgentToken, agentsQuery } from "@/api/agents";
import { Badge } from "@/ui/badge";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { CreateAgent } from "./create-agent";
import { ChangePurse } from "./change-purse";
import { PurseFacts } from "./purse-facts";
import { RevokeAgent } from "./revoke-agent";
import { Sections } from "./sections";

/** The tokens with a purse: what their agents may spend, and have spent. */
export function Component() {
  const { t } = useTranslation();
  const agents = useQuery(agentsQuery);
  return (
    <Page title={t("app.agents")} actions={<CreateAgent />}>
      <Sections />
      <p className="mb-4 max-w-3xl text-sm text-muted">{t("agents.lead")}</p>
      {agents.isError && <LoadError error={agents.error} retry={() => void agents.refetch()} />}
      {agents.isPending && <Loading />}
      {agents.data?.length === 0 && <EmptyState title={t("agents.none")} hint={t("agents.noneHint")} />}
      <ul className="grid gap-4 lg:grid-cols-2">
        {agents.data?.map((each) => (
          <li key={each.id} className="min-w-0">
            <AgentCard agent={each} />
          </li>
        ))}
      </ul>
    </Page>
  );
}

function AgentCard({ agent }: { agent: AgentToken }) {
  const { t } = useTranslation();
  return (
    <Card
      title={
        <span className="flex flex-wrap items-center gap-2">
          <Link to={`/agents/${agent.id}`} className="break-words hover:underline">
            {agent.name}
          </Link>
          {agent.agent && <Badge>{agent.agent}</Badge>}
        </span>
      }
      aside={
        <span className="flex flex-wrap gap-2">
          <ChangePurse agent={agent} />
          <RevokeAgent agent={agent} />
        </span>
      }
    >
      <PurseFacts agent={agent} />
      <div className="mt-3 flex flex-wrap gap-2">
        <ButtonLink size="sm" to={`/agents/${agent.id}`}>
          {t("agents.whatItDid")}
        </ButtonLink>
        {agent.openProposals > 0 && (
          <ButtonLink size="sm" to={`/agents/proposals?token=${agent.id}`}>
            {t("agents.proposalsOpen", { count: agent.openProposals })}
          </ButtonLink>
        )}
      </div>
    </Card>
  );
}
