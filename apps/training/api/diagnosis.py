"""Serializes a task's diagnosis for the API."""

from typing import Any

from apps.training.presenters import findings
from apps.training.services.diagnosis import OfferedAction, TaskDiagnosis
from apps.training.states import TaskState
from fermi.diagnosis.actions import ActionCode

RESUMING_ACTIONS = {
    ActionCode.RESTART_FROM_CHECKPOINT,
    ActionCode.WITHOUT_NODE,
    ActionCode.USE_SPARE,
    ActionCode.RESUME,
    ActionCode.STOP,
    ActionCode.EDIT_SCRIPT,
}
"""Actions whose hints say where training would resume."""


def serialize_diagnosis(diagnosis: TaskDiagnosis) -> dict[str, Any]:
    """Return the diagnosis as the API answers it, in the reader's language."""
    task, point = diagnosis.task, diagnosis.resume_point
    resumes = findings.describe_resume_point(point, running=task.state == TaskState.RUNNING) if point else ""
    return {
        "taskId": task.pk,
        "status": task.state,
        "healthy": diagnosis.healthy,
        "summary": findings.translate_text(diagnosis.summary)[0],
        "findings": [
            findings.serialize_finding(stored, [_serialize_action(one, resumes) for one in actions])
            for stored, actions in diagnosis.findings
        ],
        "resumePoint": point
        and {
            "step": point.step,
            "savedAt": point.saved_at,
            "attempt": point.attempt,
            "path": point.path,
            "stepsLost": point.lost,
            "resumes": point.knows_how,
            "secondsLost": point.seconds,
            "message": resumes,
        },
    }


def _serialize_action(offered: OfferedAction, resumes: str) -> dict[str, Any]:
    action, environment = offered.action, offered.environment
    params = {**action.params, **({"environmentId": environment} if environment else {})}
    found = findings.serialize_action(action, params, allowed=offered.allowed)
    if action.code in RESUMING_ACTIONS:
        found["hint"] = f"{found['hint']} {resumes}".strip()
    return found
