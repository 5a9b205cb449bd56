"""Lists and changes the patterns of printed lines that became curves of a task."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import Role, User
from apps.common.errors import ApiError
from apps.training.core import transitions, wakeups
from apps.training.models import LogPattern, MetricPoint
from apps.training.services.actions import find_task

BATCH_SIZE = 1000


def list_patterns(user: User, task_id: str) -> list[dict[str, Any]]:
    """Return the patterns of the task, in the order in which they were found."""
    task = find_task(user, task_id)
    return [_serialize(row) for row in LogPattern.objects.filter(task=task).order_by("pk")]


def change_pattern(user: User, task_id: str, key: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Switch a pattern on or off (`enabled`), name its fields or leave them out (`fields`: original name -> name, empty
    to leave it out), in all points: those stored are rewritten, later ones follow. Points of a pattern that is switched
    off, and values that are left out, are deleted. Raises ApiError 404 for an unknown pattern or field,
    409 where two fields would have one name."""
    task = find_task(user, task_id, Role.MEMBER)
    with transaction.atomic():
        transitions.lock_row_order(task.pk)
        row = LogPattern.objects.filter(task=task, key=key).first()
        if row is None:
            raise ApiError(404, "LOG_PATTERN_UNKNOWN", pattern=key)
        renamed: dict[str, str] = {}
        for name, shown in changes.get("fields", {}).items():
            if name not in row.fields:
                raise ApiError(404, "LOG_PATTERN_FIELD_UNKNOWN", field=name)
            if (before := row.fields[name]["name"]) and before != shown:
                renamed[before] = shown
            row.fields[name]["name"] = shown
        shown_names = [entry["name"] for entry in row.fields.values() if entry["name"]]
        if len(set(shown_names)) < len(shown_names):
            raise ApiError(409, "LOG_PATTERN_NAME_TAKEN", line=row.line)
        row.enabled = changes.get("enabled", row.enabled)
        row.save(update_fields=["fields", "enabled"])
        points = MetricPoint.objects.filter(task=task, pattern=key)
        if not row.enabled:
            points.delete()
        elif renamed:
            _rename(points, renamed)
        wakeups.publish_change(task.pk, "metric")
    return _serialize(row)


def _rename(points: Any, renamed: Mapping[str, str]) -> None:
    changed, empty = list[MetricPoint](), list[int]()
    for point in points.iterator(BATCH_SIZE):
        point.values = {
            renamed.get(name, name): value for name, value in point.values.items() if renamed.get(name, name)
        }
        changed.append(point) if point.values else empty.append(point.pk)
    MetricPoint.objects.bulk_update(changed, ["values"], batch_size=BATCH_SIZE)
    for at in range(0, len(empty), BATCH_SIZE):
        MetricPoint.objects.filter(pk__in=empty[at : at + BATCH_SIZE]).delete()


def _serialize(row: LogPattern) -> dict[str, Any]:
    fields = [{"name": name, "shownAs": entry["name"], "unit": entry["unit"]} for name, entry in row.fields.items()]
    return {"key": row.key, "line": row.line, "example": row.example, "enabled": row.enabled, "fields": fields}
