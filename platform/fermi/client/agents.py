"""Tokens of agents with their purses, and proposals: requests beyond a purse, which a person decides."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import AgentEvent, AgentToken, AgentTokenCreated, ProposalItem, UndoneEvent


class AgentTokens:
    """Tokens with a purse: the caller's own, and those in projects that the caller maintains.

    Limits of a purse are `gpuHours`, `money`, `maxRunning`, `preemptibleOnly` and `environments` (ids); None means no
    limit.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Listing[AgentToken]:
        return Listing(self._transport, "/agent-tokens", {})

    def get(self, token_id: str) -> AgentToken:
        return self._transport.call("GET", _path(token_id))

    def create(
        self,
        name: str,
        projects: Sequence[str],
        limits: Mapping[str, Any] | None = None,
        *,
        agent: str | None = None,
        scopes: Sequence[str] | None = None,
        expires_in_days: int | None = None,
    ) -> AgentTokenCreated:
        """Create a token with a purse and return it. The secret itself is in this answer and never shown again.
        `scopes` None: what training and reading need. `expires_in_days` None: it does not expire."""
        given = {
            "agent": agent,
            "scopes": None if scopes is None else [*scopes],
            "expiresInDays": expires_in_days,
        }
        body = {name: value for name, value in given.items() if value is not None}
        body |= {"name": name, "projectIds": [*projects], **(limits or {})}
        return self._transport.call("POST", "/agent-tokens", json=body)

    def change(self, token_id: str, limits: Mapping[str, Any]) -> AgentToken:
        """Change limits of the purse and return the token. What is spent stays counted."""
        return self._transport.call("PATCH", _path(token_id), json=dict(limits))

    def revoke(self, token_id: str) -> None:
        """Revoke the token. Its tasks go on."""
        self._transport.call("DELETE", _path(token_id))

    def events(self, token_id: str) -> Listing[AgentEvent]:
        """Return what was done with the token, the newest first, and what undoes it."""
        return Listing(self._transport, f"{_path(token_id)}/events", {})

    def undo(self, event_id: int) -> UndoneEvent:
        """Undo what an event of `events` did, with the caller's own rights. Raise ConflictError where it cannot be."""
        return self._transport.call("POST", f"/audit-events/{event_id}/undo")


class Proposals:
    """Requests of agents that a person approves or declines: those in the caller's name, and those in projects that
    the caller maintains."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, state: str | None = None, token_id: str | None = None) -> Listing[ProposalItem]:
        """Return proposals, the newest first. `state` is open, approved, declined or expired."""
        return Listing(self._transport, "/proposals", {"state": state, "tokenId": token_id})

    def get(self, proposal_id: str) -> ProposalItem:
        return self._transport.call("GET", f"/proposals/{quote(proposal_id)}")

    def approve(self, proposal_id: str, note: str = "", *, again: bool = False) -> ProposalItem:
        """Send the request once, in the name of the token's user, and return the proposal: `status` is the HTTP status
        of that request, None where it is not known. `again` sends it once more in this case."""
        body = {"note": note, "again": again}
        return self._transport.call("POST", f"/proposals/{quote(proposal_id)}/approve", json=body)

    def decline(self, proposal_id: str, note: str = "") -> ProposalItem:
        """Decline the proposal and return it. The agent can read `note`."""
        return self._transport.call("POST", f"/proposals/{quote(proposal_id)}/decline", json={"note": note})


def _path(token_id: str) -> str:
    return f"/agent-tokens/{quote(token_id)}"
