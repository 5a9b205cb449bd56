"""Tools that show and stop tasks: what there is, what state it is in, why, and what waits for what."""

import time
from collections.abc import Mapping
from typing import Any, Literal

import anyio
from pydantic import Field

from fermi.mcp.caller import Caller
from fermi.mcp.outside_text import mark_lines, mark_message, mark_text
from fermi.mcp.tools.definition import (
    ANSWER_BYTES,
    Answer,
    Arguments,
    Id,
    TaskArguments,
    Word,
    drop_none,
    fit,
    suggest,
    tool,
)
from fermi.mcp.tools.task_summary import ENDED, WAITING, detail_task, suggest_for, summarise_task

POLL_SECONDS = 1.0
MAX_FINDINGS = 5
MAX_LINES = 12  # of a finding's evidence

Status = Literal["initializing", "queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"]


class ListTasksArguments(Arguments):
    status: list[Status] = Field(default_factory=list, max_length=8, description="Only in one of these states.")
    mine: bool = Field(False, description="Only tasks of this token's user.")
    owner: Word | None = Field(None, max_length=100, description="Only tasks of this user.")
    project: Id | None = None
    search: Word | None = Field(None, max_length=100, description="Part of the name or id.")
    limit: int = Field(20, ge=1, le=100)
    cursor: str | None = Field(None, max_length=1000, description="next_cursor of the page before.")


@tool("tasks:read", arguments=ListTasksArguments)
async def list_tasks(caller: Caller, arguments: ListTasksArguments) -> Answer:
    """Training tasks, newest first: state, progress, loss. For conditions over parameters and results use find_runs."""
    owner = (await caller.call("GET", "/auth/me"))["username"] if arguments.mine else arguments.owner
    query = {
        "status": arguments.status, "owner": owner, "project": arguments.project, "search": arguments.search,
        "cursor": arguments.cursor, "count": False, "pageSize": arguments.limit,
    }  # fmt: skip
    found = await caller.call("GET", "/training-tasks", query)
    items = fit([summarise_task(one) for one in found["items"]], ANSWER_BYTES)
    if len(items) < len(found["items"]):  # the cursor has to be that of the last one shown
        found = await caller.call("GET", "/training-tasks", {**query, "pageSize": len(items)})
        items = [summarise_task(one) for one in found["items"]]
    return {"tasks": items, "next_cursor": found["nextCursor"]}


class GetTaskArguments(TaskArguments):
    wait_seconds: int = Field(0, ge=0, le=60, description="Wait at most this long for the state in `until`.")
    until: Literal["running", "ended", "changed"] = Field(
        "ended", description="running: it runs or has ended; changed: another state or attempt than now."
    )


@tool("tasks:read", arguments=GetTaskArguments)
async def get_task(caller: Caller, arguments: GetTaskArguments) -> Answer:
    """A task's state, progress, expected end, attempts and placement; waits for up to a minute if asked."""
    path = f"/training-tasks/{arguments.task_id}"
    task = await caller.call("GET", path)
    begun = task["status"], task["attempt"]
    deadline = time.monotonic() + arguments.wait_seconds
    while not _is_reached(task, arguments.until, begun) and time.monotonic() < deadline:
        await anyio.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        task = await caller.call("GET", path)
    answer: Answer = {"task": detail_task(task), "next": suggest_for(task)}
    if arguments.wait_seconds:
        answer["reached"] = _is_reached(task, arguments.until, begun)
    return answer


def _is_reached(task: Mapping[str, Any], until: str, begun: tuple[str, int]) -> bool:
    if task["status"] in ENDED:
        return True
    if until == "running":
        return task["status"] not in (*WAITING, "starting")
    return until == "changed" and (task["status"], task["attempt"]) != begun


@tool("tasks:read", arguments=TaskArguments)
async def explain_task(caller: Caller, arguments: TaskArguments) -> Answer:
    """Why a task waits, hangs, is slow or failed: the diagnosis with its evidence, and what to do next."""
    found = await caller.call("GET", f"/training-tasks/{arguments.task_id}/diagnosis")
    present = [one for one in found["findings"] if one["until"] is None]
    shown = present or found["findings"][-1:]
    findings = fit([_summarise_finding(one) for one in shown[:MAX_FINDINGS]], ANSWER_BYTES - 800)
    point = found.get("resumePoint")
    return {
        "id": found["taskId"], "status": found["status"], "healthy": found["healthy"],
        "summary": mark_text(found["summary"]), "findings": findings, "findingCount": len(found["findings"]),
        **drop_none({"resumePoint": point and drop_none({
            "step": point["step"], "resumes": point["resumes"], "stepsLost": point["stepsLost"],
            "path": point["path"] and mark_text(point["path"], most=300)})}),
        "next": _suggest_actions(found["taskId"], [action for one in shown for action in one["actions"]]),
    }  # fmt: skip


def _summarise_finding(finding: Mapping[str, Any]) -> Answer:
    places = [drop_none({"rank": one["rank"], "node": one["node"] and mark_text(one["node"], most=100)})
              for one in finding["where"][:8]]  # fmt: skip
    return drop_none({
        **(mark_message(finding) or {}),  # type: ignore[arg-type]
        "level": finding["level"], "attempt": finding["attempt"], "since": finding["since"], "where": places,
        "evidence": [drop_none({"says": mark_text(one["message"], most=300),
                                "output": mark_lines(one["lines"][-MAX_LINES:], "output of the task", most=300)
                                if one["lines"] else None}) for one in finding["evidence"][:3]],
        "actions": [one["code"] for one in finding["actions"] if one["allowed"]],
    })  # fmt: skip


ACTION_TOOLS = {
    "RESTART_FROM_CHECKPOINT": "resume_task",
    "WITHOUT_NODE": "resume_task",
    "USE_SPARE": "resume_task",
    "RESUME": "resume_task",
    "STOP": "stop_task",
    "LOWER_BATCH": "clone_task",
    "RAISE_LIMIT": "clone_task",
    "CHANGE_FIELD": "clone_task",
    "CHOOSE_OTHERS": "clone_task",
    "SEE_LOG": "read_logs",
    "SEE_TASK": "explain_task",
}
"""The tool that does what an action of the diagnosis proposes; the others are for people."""


def _suggest_actions(task_id: str, actions: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for action in actions:
        name = ACTION_TOOLS.get(action["code"])
        if not name or not action["allowed"]:
            continue
        params = action["params"]
        node = params.get("environmentId")
        rank = params.get("rank")
        one = suggest(
            name,
            action["code"],
            task_id=params.get("task", task_id) if name == "explain_task" else task_id,
            rank=str(rank) if name == "read_logs" and isinstance(rank, int) else None,
            leave_out=[node] if name == "resume_task" and isinstance(node, str) else None,
            use_spares=True if action["code"] == "USE_SPARE" else None,
        )
        if one not in found:
            found.append(one)
    return found[:6]


@tool("tasks:write", arguments=TaskArguments, changes=True, destructive=True)
async def stop_task(caller: Caller, arguments: TaskArguments) -> Answer:
    """Stop a task. Its checkpoints and logs stay; resume_task continues it as a new task."""
    task = await caller.call("POST", f"/training-tasks/{arguments.task_id}/stop")
    following = (
        [] if task["status"] in ENDED else [suggest("get_task", "STOPS", task_id=task["taskId"], wait_seconds=60)]
    )
    return {"id": task["taskId"], "status": task["status"], "next": following}


@tool("tasks:read", arguments=TaskArguments)
async def list_checkpoints(caller: Caller, arguments: TaskArguments) -> Answer:
    """Checkpoints that a task saved, newest first: path (for resume_from of clone_task), step, validation loss."""
    found = await caller.call("GET", f"/training-tasks/{arguments.task_id}/checkpoints", {"pageSize": 50})
    items = [
        drop_none({"path": mark_text(one["path"], most=1000), "step": one["step"], "attempt": one["attempt"],
                   "valLoss": one["valLoss"], "complete": one["complete"], "newest": one["newest"] or None,
                   "best": one["best"] or None, "sizeBytes": one["sizeBytes"]})
        for one in found["items"]
    ]  # fmt: skip
    return {"checkpoints": fit(items, ANSWER_BYTES), "total": found["total"]}


class ExplainQueueArguments(Arguments):
    task_id: Id | None = Field(None, description="Why this task waits; without it, the whole queue.")
    project: Id | None = None
    limit: int = Field(20, ge=1, le=100)


@tool("tasks:read", arguments=ExplainQueueArguments)
async def explain_queue(caller: Caller, arguments: ExplainQueueArguments) -> Answer:
    """What waits for what: the queue in its order, or why one task has not started, behind which tasks, when it will
    probably start, and what would let it start sooner."""
    if arguments.task_id:
        return await _explain_waiting(caller, arguments.task_id)
    found = await caller.call("GET", "/queue", {"project": arguments.project, "pageSize": arguments.limit})
    items = [
        drop_none({"number": one["number"], "id": one["taskId"], "name": mark_text(one["taskName"], most=100)
                   if one["taskName"] else None, "owner": one["owner"], "priority": one["priority"],
                   "gpus": one["asks"]["gpus"], "nodes": one["asks"]["nodes"],
                   "reason": (one["reason"] or {}).get("code"), "begins": one["begins"],
                   "after": [other["taskId"] for other in one["after"][:5] if other["taskId"]]})
        for one in found["items"]
    ]  # fmt: skip
    items = fit(items, ANSWER_BYTES)
    following = [suggest("explain_queue", "WHY", task_id=one["id"]) for one in items[:1] if "id" in one]
    return {"queue": items, "total": found["total"], "next": following}


async def _explain_waiting(caller: Caller, task_id: str) -> Answer:
    found = await caller.call("GET", f"/training-tasks/{task_id}/queue")
    needs = [
        drop_none({"environment": one["environmentId"], "held": one["held"], "heldBy": one["heldBy"],
                   "heldByName": one["heldByName"] and mark_text(one["heldByName"], most=100)})
        for one in found["needs"][:10]
    ]  # fmt: skip
    after = [
        drop_none(
            {"id": one["taskId"], "name": one["name"] and mark_text(one["name"], most=100), "until": one["until"]}
        )
        for one in found["after"][:10]
    ]
    blocker = next((one["id"] for one in after if "id" in one), None) or next(
        (one["heldBy"] for one in needs if str(one.get("heldBy", "")).startswith("task-")), None
    )
    return drop_none({
        "id": found["taskId"], "number": found["number"], "of": found["of"], "reason": mark_message(found["reason"]),
        "begins": found["begins"], "early": found["early"], "late": found["late"], "after": fit(after, 1200),
        "needs": fit(needs, 1200), "sooner": [mark_message(one, most=300) for one in found["sooner"][:4]],
        "next": [suggest("get_task", "BEFORE_IT", task_id=blocker)] if blocker
        else [suggest("get_task", "WAITS", task_id=task_id)],
    })  # fmt: skip


TOOLS = (list_tasks, get_task, explain_task, list_checkpoints, explain_queue, stop_task)
