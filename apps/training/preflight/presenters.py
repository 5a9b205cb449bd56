"""Serializes pre-flight tests for the API, in the reader's language."""

from typing import Any

from apps.common.texts import get_request_language
from apps.training.models import Preflight
from apps.training.presenters import task_presenter
from apps.training.states import TaskAction, TaskState, allowed_actions, get_run_status
from fermi.preflight.report import translate_report


def serialize_brief(test: Preflight) -> dict[str, Any]:
    """Return the test as lists show it. It is loaded with its run, and the run with its owner and nodes."""
    run, nodes = test.run, list(test.run.nodes.all())
    status = get_run_status(run.state)
    return {
        "id": test.pk,
        "status": status,
        "reason": None if status == "done" else task_presenter.serialize_reason(run.reason, run.reason_params),
        "level": test.level,
        "taskId": test.before_id,
        "projectId": run.project_id,
        "owner": run.owner.username,
        "createdAt": run.created_at,
        "startedAt": run.started_at,
        "endedAt": run.ended_at,
        "environments": [{"id": node.environment_id, "name": node.name} for node in nodes],
        "verdict": translate_report(test.report, get_request_language())["verdict"],
    }


def serialize_detail(test: Any) -> dict[str, Any]:
    """Return the test with its nodes, pairs and allowed actions. Without a report its nodes' levels are unknown."""
    actions = allowed_actions(TaskState(test.run.state), changes=test.may_change)
    unknown = [
        {"environmentId": node["id"], "name": node["name"], "level": "unknown", "findings": []}
        for node in test.run.spec["nodes"]
    ]
    shown = translate_report(test.report, get_request_language())
    return {
        **serialize_brief(test),
        **shown,
        "nodes": shown["nodes"] or unknown,
        "allowedActions": [action for action in actions if action is TaskAction.STOP],
    }
