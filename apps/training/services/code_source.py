"""Where a task's code came from, whether that has changed since, and which code a retry is to run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apps.accounts import secrets
from apps.accounts.models import Project
from apps.code import changes, git
from apps.code.errors import FetchError
from apps.common.errors import ApiError
from apps.common.texts import text
from apps.training.models import Task

Choice = Literal["auto", "snapshot", "current"]
"""Of the code that a retry runs: the task's snapshot, its source as it is now, or the source where that has changed."""
DEFAULT: Choice = "auto"
"""Whoever asks for it: the API and the operators' console."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """`changed`: None where it is not known; `why`: the code and parameters of the text that says why."""

    changed: bool | None = None
    why: Mapping[str, Any] | None = None


def check_source(task: Task) -> SourceState:
    """Asks the environment or the Git server that the task's code came from, and waits up to the limit of that kind of
    source (`apps.code.from_environment`, `apps.code.git`). A source that cannot be read is a state, no error."""
    held = task.spec.get("code") or {}
    source = held.get("source") or {}
    if not held.get("snapshot") or not source:
        return SourceState()
    project = Project.objects.get(pk=task.project_id)
    try:
        commit = (held.get("origin") or {}).get("commit") or ""
        return SourceState(changes.has_changed(project, source, held["snapshot"], commit))
    except (FetchError, secrets.Unavailable) as error:
        return SourceState(None, {"code": error.code, **error.params})


def snapshot_to_run(task: Task, choice: Choice, snapshot: str | None = None) -> str | None:
    """For `ground.code.again`: `snapshot` itself where one is named, None for the task's own, "" to take the code anew.
    Raises ApiError where it was sent from a computer, so that the platform cannot take it anew."""
    held = task.spec.get("code") or {}
    if snapshot or choice == "snapshot" or not held.get("snapshot"):
        return snapshot or None
    if choice == "current" and not held.get("source"):
        raise ApiError(409, "CODE_SOURCE_UNKNOWN", "code", task=task.pk)
    return "" if choice == "current" or check_source(task).changed else None


def describe_source(task: Task) -> dict[str, Any]:
    """Returns what the API answers of where the task's code came from, in the reader's language."""
    held = task.spec.get("code") or {}
    source = held.get("source") or {}
    asked = source.get("git") or {}
    found = check_source(task)
    message, hint = text(found.why["code"], found.why) if found.why else ("", "")
    return {
        "snapshotId": held.get("snapshot") or None,
        "kind": "git" if asked else "environment" if "environment" in source else "upload" if held else "node",
        "environment": source.get("name") or "",
        "path": source.get("path") or "",
        "url": git.shown(asked.get("url") or ""),
        "revision": asked.get("revision") or "",
        "changed": found.changed,
        "why": {"code": found.why["code"], "message": message, "hint": hint} if found.why else None,
    }
