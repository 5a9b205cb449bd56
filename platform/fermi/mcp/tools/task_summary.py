"""A task as the tools show it, and what can be done next in its state."""

from collections.abc import Mapping
from typing import Any

from fermi.mcp.outside_text import mark_message, mark_text
from fermi.mcp.tools.definition import Answer, drop_none, suggest

ENDED = ("succeeded", "failed", "stopped")
WAITING = ("initializing", "queued")


def summarise_task(task: Mapping[str, Any]) -> Answer:
    """Return the task's state and figures."""
    finding, reason = task.get("finding"), task.get("reason")
    return drop_none({
        "id": task["taskId"],
        "name": mark_text(task["taskName"], most=100),
        "owner": task.get("owner"),
        "project": task.get("projectId"),
        "status": task["status"],
        "paused": task.get("paused") or None,
        "reason": reason and reason.get("code"),
        "finding": finding and finding.get("code"),
        "framework": task.get("framework"),
        "nodes": task.get("nodeCount"),
        "gpus": task.get("totalGpus"),
        "attempt": task.get("attempt"),
        "step": task.get("step"),
        "totalSteps": task.get("totalSteps"),
        "loss": task.get("loss"),
        "lossNotFinite": task.get("lossNotFinite") or None,
        "createdAt": _cut_time(task.get("createdAt")),
        "startedAt": _cut_time(task.get("startedAt")),
        "endedAt": _cut_time(task.get("endedAt")),
        "estimatedEndAt": _cut_time(task.get("estimatedEndAt")),
        "tags": [mark_text(tag, most=60) for tag in task.get("tags", ())],
    })  # fmt: skip


def detail_task(task: Mapping[str, Any]) -> Answer:
    """Return the task's state with its attempts, nodes and ranks."""
    return summarise_task(task) | drop_none({
        "reason": mark_message(task.get("reason")),
        "finding": mark_message(task.get("finding")),
        "resumeFrom": next((mark_text(one["resumeFrom"], most=300) for one in reversed(task["attempts"])
                            if one["resumeFrom"]), None),
        "attempts": [drop_none({"number": one["number"], "outcome": (one["outcome"] or {}).get("code"),
                                "failedRank": one["failedRank"], "endedAt": _cut_time(one["endedAt"])})
                     for one in task["attempts"][-5:]],
        "placement": [{"environment": one["environmentId"], "gpuType": one["gpuType"], "emulated": one["emulated"],
                       "ranks": _describe_ranks(one["ranks"])} for one in task["nodes"][:8]],
        "failedRanks": [{"rank": one["rank"], "exitCode": one["exitCode"]} for one in task["ranks"]
                        if one["ending"] == "failed"][:8],
        "allowed": task["allowedActions"],
        "warnings": [one["code"] for one in task["warnings"]],
    })  # fmt: skip


def suggest_for(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what can sensibly be done next with a task in its state."""
    task_id, status = task["taskId"], task["status"]
    if task.get("paused"):
        return [suggest("resume_task", "PAUSED", task_id=task_id)]
    if status in WAITING:
        return [
            suggest("explain_queue", "WAITS", task_id=task_id),
            suggest("get_task", "WAITS", task_id=task_id, wait_seconds=60, until="running"),
        ]
    if status == "failed":
        return [
            suggest("explain_task", "FAILED", task_id=task_id),
            suggest("read_logs", "FAILED", task_id=task_id, first_error=True),
        ]
    if status == "succeeded":
        return [suggest("read_metrics", "SUCCEEDED", task_id=task_id)]
    if status == "stopped":
        return [suggest("resume_task", "STOPPED", task_id=task_id)]
    found = [suggest("get_task", "RUNS", task_id=task_id, wait_seconds=60)]
    if (task.get("finding") or {}).get("level") in ("warn", "fail"):
        found.insert(0, suggest("explain_task", "FINDING", task_id=task_id))
    return found


def _cut_time(moment: str | None) -> str | None:
    """Return a time to the second."""
    return moment[:19] + "Z" if moment else None


def _describe_ranks(ranks: list[int]) -> str:
    return f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else ", ".join(map(str, ranks))
