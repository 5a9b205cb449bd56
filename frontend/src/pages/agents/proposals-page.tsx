import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { agentsQuery, PROPOSALS_PER_PAGE, type ProposalState, proposalsQuery } from "@/api/agents";
import { useFilters } from "@/lib/use-filters";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { ProposalCard } from "./proposal-card";
import { Sections } from "./sections";

const STATES = ["open", "approved", "declined", "expired"] as const satisfies ProposalState[];

/** What agents want to do beyond their purses. Without a filter: what waits for a decision. */
export function Component() {
  const { t } = useTranslation();
  const { filters, page, set, of } = useFilters(["state", "token"]);
  const state = filters.state ?? "open";
  const proposals = useQuery(
    proposalsQuery({
      ...(state !== "all" && { state: state as ProposalState }),
      ...(filters.token && { tokenId: filters.token }),
      page,
    }),
  );
  const agents = useQuery(agentsQuery).data ?? [];
  const found = proposals.data;
  return (
    <Page title={t("agents.proposals")}>
      <Sections />
      <p className="mb-3 max-w-3xl text-sm text-muted">{t("agents.proposalsLead")}</p>
      <div className="mb-4 flex flex-wrap gap-2">
        <FilterSelect
          label={t("agents.states")}
          any={t("agents.stateOf.open")}
          options={[
            ...STATES.filter((each) => each !== "open").map((each): [string, string] => [
              each,
              t(`agents.stateOf.${each}`),
            ]),
            ["all", t("agents.allStates")],
          ]}
          {...of("state")}
        />
        {agents.length > 0 && (
          <FilterSelect
            label={t("app.agents")}
            any={t("agents.allAgents")}
            options={agents.map(({ id, name }): [string, string] => [id, name])}
            {...of("token")}
          />
        )}
      </div>
      {proposals.isError && <LoadError error={proposals.error} retry={() => void proposals.refetch()} />}
      {proposals.isPending && <Loading />}
      {found?.items.length === 0 && (
        <EmptyState title={t(state === "open" ? "agents.noneOpen" : "agents.noProposals")} />
      )}
      {found && found.items.length > 0 && (
        <>
          <ul className="max-w-5xl space-y-4">
            {found.items.map((each) => (
              <li key={each.id}>
                <ProposalCard proposal={each} />
              </li>
            ))}
          </ul>
          <Pager
            count={t("agents.proposalCount", { count: found.total })}
            pages={Math.ceil(found.total / PROPOSALS_PER_PAGE)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}
