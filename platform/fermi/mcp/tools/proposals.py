"""The tool for what waits for a person's decision."""

import time
from collections.abc import Mapping
from typing import Any

import anyio
from pydantic import Field

from fermi.mcp.caller import Caller
from fermi.mcp.outside_text import mark_message, mark_text
from fermi.mcp.tools.definition import Answer, Arguments, Id, drop_none, suggest, tool

POLL_SECONDS = 2.0
MAX_PROBLEMS = 5


class GetProposalArguments(Arguments):
    proposal_id: Id = Field(description="From an error with `proposal`.")
    wait_seconds: int = Field(0, ge=0, le=60, description="Wait at most this long for a person's decision.")


@tool("agents:read", arguments=GetProposalArguments)
async def get_proposal(caller: Caller, arguments: GetProposalArguments) -> Answer:
    """What a person decided about a request beyond the purse: open, approved (with the answer), declined (with
    the reason) or expired. Never send the request again while it is open."""
    path = f"/proposals/{arguments.proposal_id}"
    found = await caller.call("GET", path)
    deadline = time.monotonic() + arguments.wait_seconds
    while found["state"] == "open" and time.monotonic() < deadline:
        await anyio.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        found = await caller.call("GET", path)
    result = found["result"] or {}
    data = result.get("data") or {}
    return {
        **drop_none({
            "id": found["id"], "state": found["state"], "operation": found["operation"],
            "expiresAt": found["expiresAt"] if found["state"] == "open" else None,
            "note": found["note"] and mark_text(found["note"]), "status": found["status"],
            "problems": [mark_message(one) for one in (result.get("errors") or [])[:MAX_PROBLEMS]],
            "taskId": data.get("taskId")}),
        "next": _suggest(found, data),
    }  # fmt: skip


def _suggest(found: Mapping[str, Any], data: Mapping[str, Any]) -> list[dict[str, Any]]:
    if found["state"] == "open":
        return [suggest("get_proposal", "PERSON_DECIDES", proposal_id=found["id"], wait_seconds=60)]
    if task := data.get("taskId"):
        return [suggest("get_task", "APPROVED", task_id=task)]
    return []


TOOLS = (get_proposal,)
