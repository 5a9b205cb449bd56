"""Serializes drills for the API, in the reader's language."""

from typing import Any

from apps.training.models import Drill
from apps.training.presenters import task_presenter
from apps.training.states import TaskAction, TaskState, allowed_actions, get_run_status


def serialize_drill(drill: Drill) -> dict[str, Any]:
    """Return the drill, which is loaded with its run, and the run with its owner."""
    run, report = drill.run, drill.report
    status = get_run_status(run.state)
    actions = allowed_actions(TaskState(run.state), changes=getattr(drill, "may_change", False))
    checkpoint = report.get("checkpoint")
    return {
        "id": drill.pk,
        "status": status,
        "reason": None if status == "done" else task_presenter.serialize_reason(run.reason, run.reason_params),
        "taskId": drill.task_id,
        "stage": drill.stage,
        "projectId": run.project_id,
        "owner": run.owner.username,
        "minutes": run.spec.get("drill_minutes"),
        "createdAt": run.created_at,
        "startedAt": run.started_at,
        "endedAt": run.ended_at,
        "attempt": run.attempt,
        "step": run.progress.get("step"),
        "verdict": _serialize_verdict(report["verdict"]) if report else None,
        "rank": report.get("rank"),
        "node": report.get("node"),
        "checkpoint": checkpoint
        and {"path": checkpoint["path"], "sizeBytes": checkpoint["size"], "step": checkpoint["step"]},
        "killedStep": report.get("killedStep"),
        "resumedStep": report.get("resumedStep"),
        "stepsLost": report.get("stepsLost"),
        "restartSeconds": report.get("restartSeconds"),
        "resumedSeconds": report.get("resumedSeconds"),
        "allowedActions": [action for action in actions if action is TaskAction.STOP],
    }


def _serialize_verdict(verdict: dict[str, Any]) -> dict[str, Any]:
    return {"level": verdict["level"], **task_presenter.serialize_warning(verdict["code"], verdict["params"])}
