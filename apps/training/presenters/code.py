"""Serializes a task's code for the API."""

from typing import Any

from apps.code import selectors
from apps.code.models import Fetch
from apps.training.models import Task


def serialize_code(task: Task) -> dict[str, Any]:
    """Return the task's snapshot, its origin, its fetch, and the task before it with code."""
    held = task.spec.get("code") or {}
    row = selectors.find_in_project(task.project_id, held.get("snapshot") or "")
    fetch = Fetch.objects.select_related("snapshot").filter(pk=(held.get("source") or {}).get("fetch")).first()
    return {
        "snapshot": selectors.serialize_snapshot(row) if row else None,
        "origin": selectors.serialize_origin(held.get("origin") or {}) if row else None,
        "fetch": selectors.serialize_fetch(fetch) if fetch else None,
        "requirements": held.get("requirements") or "off",
        "script": _format_entrypoint(task),
        "previous": _find_previous(task),
    }


def _format_entrypoint(task: Task) -> str:
    """Return the script, `-m` and the module, or the command."""
    named = task.spec.get("entrypoint") or {}
    if named.get("command"):
        return " ".join(named["command"])
    return f"-m {named['module']}" if named.get("module") else named.get("script") or ""


def _find_previous(task: Task) -> dict[str, Any] | None:
    """Return the newest earlier task with code and the same name; if there is none, of the same owner."""
    earlier = Task.trainings.filter(project=task.project_id, created_at__lt=task.created_at)
    for rows in (earlier.filter(name=task.name), earlier.filter(owner=task.owner_id)):
        for before in rows.order_by("-created_at").only("pk", "created_at", "spec")[:20]:
            if digest := (before.spec.get("code") or {}).get("snapshot"):
                return {"taskId": before.pk, "createdAt": before.created_at, "snapshotId": digest}
    return None
