"""Endpoints of agents' tokens, proposals and undoing."""

from typing import Any

from apps.accounts.models import AuditEvent
from apps.agents import selectors
from apps.agents.api import serializers as shapes
from apps.agents.models import Proposal
from apps.agents.services import proposals, purses, undo
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.common.texts import render_text
from fermi.jobs.spec import Problem

_LIMITS = ("gpu_hours", "money", "preemptible_only", "max_running", "environments")


class AgentTokensView(APIView):
    @operation("listAgentTokens", scope="agents:read", query=shapes.AgentTokenQuery, page=shapes.AgentToken)
    def get(self, request: Request, query: Query) -> Data:
        """List the tokens with a purse that are yours or belong to projects that you maintain, with what is spent."""
        return paginate_rows(selectors.filter_purses(request.user), query, selectors.serialize_purse)

    @operation(
        "createAgentToken",
        scope="agents:write",
        body=shapes.AgentTokenCreateRequest,
        data=shapes.AgentTokenCreated,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Create a token for an agent, with a purse that bounds what it may spend. The token is shown this once."""
        limits = {name: body.pop(name) for name in _LIMITS if name in body}
        return purses.create_agent_token(request.user, body.pop("name"), body.pop("projects"), limits, **body)


class AgentTokenView(APIView):
    @operation("getAgentToken", scope="agents:read", data=shapes.AgentToken)
    def get(self, request: Request, token_id: str) -> Data:
        """Return one token with its purse."""
        return selectors.serialize_purse(purses.get_purse(request.user, token_id))

    @operation("changePurse", scope="agents:write", body=shapes.PurseRequest, partial=True, data=shapes.AgentToken)
    def patch(self, request: Request, token_id: str, body: Body) -> Data:
        """Change limits of a purse. What is spent stays counted."""
        return selectors.serialize_purse(purses.change_purse(request.user, token_id, body))

    @operation("revokeAgentToken", scope="agents:write")
    def delete(self, request: Request, token_id: str) -> None:
        """Revoke an agent's token. Its tasks go on; its proposals stay until they are decided."""
        purses.revoke_agent_token(request.user, token_id)


class OwnPurseView(APIView):
    @operation("getOwnPurse", scope="any", data=shapes.AgentToken, nullable=True)
    def get(self, request: Request) -> Data:
        """Return the purse of the token of this request, and what is left; null without one."""
        rights = request.user.token_rights
        found = selectors.filter_purses(request.user).filter(pk=rights.token).first() if rights else None
        return selectors.serialize_purse(found) if found else None


class AgentEventsView(APIView):
    @operation("listAgentEvents", scope="agents:read", query=shapes.AgentEventQuery, page=shapes.AgentEvent)
    def get(self, request: Request, token_id: str, query: Query) -> Data:
        """List what was done with an agent's token, newest first, and what undoes it."""
        found = paginate_rows(selectors.list_token_events(request.user, token_id), query)
        obstacles = undo.find_obstacles(request.user, found["items"])
        return {**found, "items": [_serialize_event(event, obstacles.get(event.pk)) for event in found["items"]]}


class ProposalsView(APIView):
    @operation("listProposals", scope="agents:read", query=shapes.ProposalQuery, page=shapes.ProposalItem)
    def get(self, request: Request, query: Query) -> Data:
        """List requests of agents that went beyond their purse: yours, and those of projects that you maintain."""
        rows = selectors.filter_proposals(request.user).select_related("person", "decided_by")
        if state := query.get("state"):
            rows = rows.filter(state=state)
        if token := query.get("tokenId"):
            rows = rows.filter(purse=token)
        return paginate_rows(rows, query, lambda row: selectors.serialize_proposal(row, request.user))


class ProposalView(APIView):
    @operation("getProposal", scope="agents:read", data=shapes.ProposalItem)
    def get(self, request: Request, proposal_id: str) -> Data:
        """Return one proposal."""
        found = selectors.filter_proposals(request.user).filter(pk=proposal_id).first()
        if found is None:
            raise ApiError(404, "NOT_FOUND")
        return _serialize(request, found)


class ProposalApproveView(APIView):
    @operation("approveProposal", scope="agents:write", body=shapes.ProposalApproveRequest, data=shapes.ProposalItem)
    def post(self, request: Request, proposal_id: str, body: Body) -> Data:
        """Approve a proposal: its request is sent once, as the token's person, who pays for it. Repeating this returns
        the same answer. 409 where it is decided otherwise, or was cut off."""
        return _serialize(request, proposals.approve_proposal(request.user, proposal_id, **body))


class ProposalDeclineView(APIView):
    @operation("declineProposal", scope="agents:write", body=shapes.ProposalDeclineRequest, data=shapes.ProposalItem)
    def post(self, request: Request, proposal_id: str, body: Body) -> Data:
        """Decline a proposal. Repeating the request changes nothing."""
        return _serialize(request, proposals.decline_proposal(request.user, proposal_id, note=body["note"]))


class AuditEventUndoView(APIView):
    @operation("undoAuditEvent", scope="agents:write", data=shapes.UndoneEvent)
    def post(self, request: Request, event_id: str) -> Data:
        """Undo what was done, with your own rights: stop a task that was created, continue one that was stopped, resume
        or pause. 409 says why something cannot be undone."""
        task = undo.undo_event(request.user, event_id)
        return {"taskId": task.pk, "status": task.state}


def _serialize(request: Request, found: Proposal) -> dict[str, Any]:
    return selectors.serialize_proposal(found, request.user)


def _serialize_event(event: AuditEvent, obstacle: Problem | None) -> dict[str, Any]:
    message, hint = render_text(obstacle.code, obstacle.params) if obstacle else ("", "")
    return {
        "id": event.pk,
        "at": event.at,
        "action": event.action,
        "target": event.target,
        "project": event.project_id,
        "data": event.data,
        "undo": None if obstacle else undo.UNDOABLE.get(event.action),
        "undoRefusal": {"code": obstacle.code, "message": message, "hint": hint} if obstacle else None,
    }
