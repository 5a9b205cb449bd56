"""Applies to points of printed lines what users have changed about their patterns. Points are stored as they were
printed, so every change can be taken back."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.training.models import LogPattern


def apply_patterns(task_id: str, points: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points, each with its `pattern` and `values`, as users want them: renamed, without fields that are
    left out, without points of patterns that are switched off. One query, or none where no point has a pattern."""
    points = list(points)
    if not any(point["pattern"] for point in points):
        return points
    changed = load_changes([task_id]).get(task_id)
    return [point for point in points if _apply(point, changed.get(point["pattern"], {}))] if changed else points


def load_changes(task_ids: Iterable[str]) -> dict[str, dict[str, Mapping[str, str] | None]]:
    """Return what users changed about patterns, by task and key: the shown names of fields that have another one, empty
    for one that is left out; None for a pattern that is switched off. Patterns without changes are left out."""
    found: dict[str, dict[str, Mapping[str, str] | None]] = {}
    for one in LogPattern.objects.filter(task__in=list(task_ids)):
        if (names := _find_changes(one)) != {}:
            found.setdefault(one.task_id, {})[one.key] = names
    return found


def _find_changes(pattern: LogPattern) -> Mapping[str, str] | None:
    """Return the shown names of fields that have another one; None if the pattern is switched off."""
    if not pattern.enabled:
        return None
    return {name: entry["name"] for name, entry in pattern.fields.items() if entry["name"] != name}


def _apply(point: dict[str, Any], names: Mapping[str, str] | None) -> bool:
    if names is None:
        return False
    point["values"] = {names.get(name, name): value for name, value in point["values"].items() if names.get(name, name)}
    return bool(point["values"])
