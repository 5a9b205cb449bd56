import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type AgentToken = components["schemas"]["AgentToken"];
export type AgentTokenCreated = components["schemas"]["AgentTokenCreated"];
export type AgentTokenRequest = components["schemas"]["AgentTokenCreateRequest"];
export type PurseChange = components["schemas"]["PatchedPurseRequest"];
export type Proposal = components["schemas"]["ProposalItem"];
export type ProposalState = Proposal["state"];
export type AgentEvent = components["schemas"]["AgentEvent"];

const PAGE = 100;
export const PROPOSALS_PER_PAGE = 20;
export const EVENTS_PER_PAGE = 20;
const POLL_MS = 10_000;
const BADGE_POLL_MS = 60_000;

const agentKeys = {
  agents: ["agents"] as const,
  proposals: ["agents", "proposals"] as const,
};

/** All tokens with a purse that the user may see; what they spend changes while tasks run. */
export const agentsQuery = queryOptions({
  queryKey: [...agentKeys.agents, "list"] as const,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/agent-tokens", { params: { query: { page, pageSize: PAGE } } })),
    ),
  refetchInterval: POLL_MS,
});

const ofToken = (id: string) => ({ path: { token_id: id } });
const ofProposal = (id: string) => ({ path: { proposal_id: id } });

export const agentQuery = (id: string) =>
  queryOptions({
    queryKey: [...agentKeys.agents, "one", id] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/agent-tokens/{token_id}", { params: ofToken(id) })),
    refetchInterval: POLL_MS,
  });

export const agentEventsQuery = (id: string, page: number) =>
  queryOptions({
    queryKey: [...agentKeys.agents, "events", id, page] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/agent-tokens/{token_id}/events", {
          params: { ...ofToken(id), query: { page, pageSize: EVENTS_PER_PAGE } },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const proposalsQuery = (filters: { state?: ProposalState; tokenId?: string; page: number }) =>
  queryOptions({
    queryKey: [...agentKeys.proposals, "list", filters] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/proposals", { params: { query: { ...filters, pageSize: PROPOSALS_PER_PAGE } } }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const proposalQuery = (id: string) =>
  queryOptions({
    queryKey: [...agentKeys.proposals, "one", id] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/proposals/{proposal_id}", { params: ofProposal(id) })),
    refetchInterval: POLL_MS,
  });

/** The number of proposals that wait for a decision. */
export const openProposalsQuery = queryOptions({
  queryKey: [...agentKeys.proposals, "open"] as const,
  queryFn: async () =>
    (await unwrapResponse(http.GET("/api/v1/proposals", { params: { query: { state: "open", pageSize: 1 } } }))).total,
  refetchInterval: BADGE_POLL_MS,
});

export const invalidateAgents = (client: QueryClient) => client.invalidateQueries({ queryKey: agentKeys.agents });

/** Creates a token with a purse. Only this answer holds its value. */
export const createAgent = (body: AgentTokenRequest) => unwrapResponse(http.POST("/api/v1/agent-tokens", { body }));

export const changePurse = (id: string, body: PurseChange) =>
  unwrapResponse(http.PATCH("/api/v1/agent-tokens/{token_id}", { params: ofToken(id), body }));

export const revokeAgent = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/agent-tokens/{token_id}", { params: ofToken(id) }));

/** Approves a proposal. `again`: sends its request once more although its first answer is not known. */
export const approveProposal = (id: string, note: string, again: boolean) =>
  unwrapResponse(
    http.POST("/api/v1/proposals/{proposal_id}/approve", { params: ofProposal(id), body: { note, again } }),
  );

export const declineProposal = (id: string, note: string) =>
  unwrapResponse(http.POST("/api/v1/proposals/{proposal_id}/decline", { params: ofProposal(id), body: { note } }));

export const undoEvent = (id: number) =>
  unwrapResponse(http.POST("/api/v1/audit-events/{event_id}/undo", { params: { path: { event_id: String(id) } } }));
