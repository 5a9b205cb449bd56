"""Lists and changes the patterns of printed lines that became curves of a task."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import Role, User
from apps.common.errors import ApiError
from apps.training.core import summaries, transitions, wakeups
from apps.training.models import LogPattern
from apps.training.services.actions import find_task


def list_patterns(user: User, task_id: str) -> list[dict[str, Any]]:
    """Return the patterns of the task, in the order in which they were found."""
    task = find_task(user, task_id)
    return [_serialize(row) for row in LogPattern.objects.filter(task=task).order_by("pk")]


def change_pattern(user: User, task_id: str, key: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Switch a pattern on or off (`enabled`), name its fields or leave them out (`fields`: original name -> name, empty
    to leave it out), in all points (`core.log_patterns`). Raises ApiError 404 for an unknown pattern or field, and 409
    where two fields would have one name."""
    task = find_task(user, task_id, Role.MEMBER)
    with transaction.atomic():
        transitions.lock_row_order(task.pk)
        row = LogPattern.objects.filter(task=task, key=key).first()
        if row is None:
            raise ApiError(404, "LOG_PATTERN_UNKNOWN", pattern=key)
        for name, shown in changes.get("fields", {}).items():
            if name not in row.fields:
                raise ApiError(404, "LOG_PATTERN_FIELD_UNKNOWN", field=name)
            row.fields[name]["name"] = shown
        shown_names = [entry["name"] for entry in row.fields.values() if entry["name"]]
        if len(set(shown_names)) < len(shown_names):
            raise ApiError(409, "LOG_PATTERN_NAME_TAKEN", line=row.line)
        row.enabled = changes.get("enabled", row.enabled)
        row.save(update_fields=["fields", "enabled"])
        summaries.store_summaries(task.pk, summaries.load_states(task.pk, task.attempt))
        wakeups.publish_change(task.pk, "metric")
    return _serialize(row)


def _serialize(row: LogPattern) -> dict[str, Any]:
    fields = [{"name": name, "shownAs": entry["name"], "unit": entry["unit"]} for name, entry in row.fields.items()]
    return {"key": row.key, "line": row.line, "example": row.example, "enabled": row.enabled, "fields": fields}
