"""Tells where a task's code came from, whether it has changed since, and which code a retry runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apps.accounts import secrets
from apps.accounts.models import Project
from apps.code import git
from apps.code.errors import FetchError
from apps.code.fetch import has_changed
from apps.common.errors import ApiError
from apps.common.texts import render_text
from apps.training.models import Task

RetryCode = Literal["auto", "snapshot", "current"]
"""Code that a retry runs: the task's snapshot, its source as it is now, or the source if it has changed."""
DEFAULT_RETRY_CODE: RetryCode = "auto"
"""Choice of the API and the operators' console if the caller makes none."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """State of a source. `changed`: None if it is not known; `why`: code and parameters of the text that says why
    not."""

    changed: bool | None = None
    why: Mapping[str, Any] | None = None


def check_source(task: Task) -> SourceState:
    """Return whether the source of the task's code has changed. Asks the environment or the Git server, and waits up to
    the limit of that kind of source (`apps.code.from_environment`, `apps.code.git`). A source that cannot be read is a
    state, not an error."""
    held = task.spec.get("code") or {}
    source = held.get("source") or {}
    if not held.get("snapshot") or not source:
        return SourceState()
    project = Project.objects.get(pk=task.project_id)
    try:
        commit = (held.get("origin") or {}).get("commit") or ""
        return SourceState(has_changed(project, source, held["snapshot"], commit))
    except (FetchError, secrets.SecretUnavailableError) as error:
        return SourceState(None, {"code": error.code, **error.params})


def choose_snapshot(task: Task, choice: RetryCode, snapshot: str | None = None) -> str | None:
    """Return the `snapshot` for `core.code.rebuild_request`: the one that the caller names, None for the task's own, ""
    to fetch the code again. Raises ApiError 409 if the code was uploaded, so that the platform cannot fetch it again.
    """
    held = task.spec.get("code") or {}
    if snapshot or choice == "snapshot" or not held.get("snapshot"):
        return snapshot or None
    if choice == "current" and not held.get("source"):
        raise ApiError(409, "CODE_SOURCE_UNKNOWN", "code", task=task.pk)
    return "" if choice == "current" or check_source(task).changed else None


def describe_source(task: Task) -> dict[str, Any]:
    """Return the API's answer about the source of the task's code, in the reader's language."""
    held = task.spec.get("code") or {}
    source = held.get("source") or {}
    asked = source.get("git") or {}
    found = check_source(task)
    message, hint = render_text(found.why["code"], found.why) if found.why else ("", "")
    return {
        "snapshotId": held.get("snapshot") or None,
        "kind": "git" if asked else "environment" if "environment" in source else "upload" if held else "node",
        "environment": source.get("name") or "",
        "path": source.get("path") or "",
        "url": git.redact_url(asked.get("url") or ""),
        "revision": asked.get("revision") or "",
        "changed": found.changed,
        "why": {"code": found.why["code"], "message": message, "hint": hint} if found.why else None,
    }
