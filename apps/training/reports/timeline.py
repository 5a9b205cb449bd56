"""Computes the timeline of environments: who held each of them, who holds it until when, and who gets it next."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet

from apps.accounts.models import User
from apps.clusters import selectors
from apps.clusters.models import DevEnvironment
from apps.common.errors import ApiError
from apps.common.sql import split_keys
from apps.scheduling.models import Reservation, Usage
from apps.training.models import Task
from apps.training.queue import outlook
from apps.training.queue.outlook import QueueForecast
from apps.training.reports.queue import VisibilityFilter, estimate_end, get_forecast, to_datetime

Spans = defaultdict[str, list[dict[str, Any]]]
MAX_RANGE = timedelta(days=100)
MAX_PAST_SPANS = 20_000
"""Most ended holds that are returned, newest first."""


def build_timeline(user: User, begins: datetime, ends: datetime, project: str = "") -> dict[str, Any]:
    """Return the timeline between the two moments, of the environments that `user` may use. Raises ApiError 400 if they
    are in the wrong order or too far apart."""
    if not begins < ends:
        raise ApiError(400, "TIMES_BACKWARDS", "to")
    if ends - begins > MAX_RANGE:
        raise ApiError(400, "TIMELINE_TOO_LONG", "to", days=MAX_RANGE.days)
    rows = selectors.list_visible_environments(user)
    environments = list(_query_environments(rows.filter(project=project) if project else rows))
    keys = {row["id"] for row in environments}
    view, visibility, spans = outlook.get_queue_forecast(), VisibilityFilter(user), Spans(list)
    _add_past_spans(spans, view, visibility, keys, begins, ends)
    _add_current_spans(spans, view, visibility, keys)
    _add_reserved_spans(spans, visibility, keys, begins, ends)
    _add_planned_spans(spans, view, visibility, keys)
    within = {key: [one for one in found if _overlaps(one, begins, ends)] for key, found in spans.items()}
    shown = [{"zone": row.pop("zoneName"), **row, "spans": within.get(row["id"], [])} for row in environments]
    return {"environments": shown}


def _query_environments(rows: QuerySet[DevEnvironment]) -> QuerySet[DevEnvironment, Any]:
    named: dict[str, Any] = {"zoneName": F("zone__name"), "gpuType": F("gpu_type"), "gpuCount": F("gpu_count")}
    return rows.order_by("zone__name", "name", "pk").values("id", "name", **named)


def _overlaps(span: Mapping[str, Any], begins: datetime, ends: datetime) -> bool:
    return (span["from"] is None or span["from"] < ends) and (span["to"] is None or span["to"] > begins)


def _add_past_spans(
    spans: Spans, view: QueueForecast, visibility: VisibilityFilter, keys: set[str], begins: datetime, ends: datetime
) -> None:
    rows = Usage.objects.filter(since__lt=ends, until__gt=begins, environment__isnull=False).order_by("-since")
    columns = ("environment_id", "task", "task_name", "project_id", "since", "until")
    found = [row for row in rows.values_list(*columns)[:MAX_PAST_SPANS] if row[0] in keys]
    known = _filter_trainings({row[1] for row in found})
    for key, task, name, project, since, until in reversed(found):
        now = view.holders.get(key)
        if now is not None and now.task == task and since.timestamp() >= now.since:
            continue  # it is still going on
        seen = visibility.can_see(project)
        spans[key].append(
            {"taskId": task if seen and task in known else None, "name": name if seen else "", "from": since,
             "to": until, "sure": True, "kind": "held"}
        )  # fmt: skip


def _add_current_spans(spans: Spans, view: QueueForecast, visibility: VisibilityFilter, keys: set[str]) -> None:
    known = _filter_trainings(set(view.running_by_id))
    for one in view.scene.running:
        told = visibility.task(one)
        told["taskId"] = told["taskId"] if one.task in known else None
        for key in keys & set(one.places):
            spans[key].append(
                {**told, "from": to_datetime(one.since), "to": to_datetime(estimate_end(view, one)), "kind": "held",
                 "sure": one.until is not None and one.task not in view.preemption_ends}
            )  # fmt: skip


def _add_reserved_spans(
    spans: Spans, visibility: VisibilityFilter, keys: set[str], begins: datetime, ends: datetime
) -> None:
    rows = Reservation.objects.filter(begins_at__lt=ends, ends_at__gt=begins).order_by("begins_at")
    columns = ("environments", "project_id", "project__name", "note", "begins_at", "ends_at")
    for key, project, name, note, since, until in rows.values_list(*columns):
        if key not in keys:
            continue
        told = (note or name or "") if project is None or visibility.can_see(project) else ""
        kind = "maintenance" if project is None else "reserved"
        spans[key].append({"taskId": None, "name": told, "from": since, "to": until, "sure": True, "kind": kind})


def _add_planned_spans(spans: Spans, view: QueueForecast, visibility: VisibilityFilter, keys: set[str]) -> None:
    for turn in view.decision.turns:
        if not (wanted := keys & {*turn.start, *turn.needs}):
            continue
        one = view.waiting[turn.task]
        begins, lasts = get_forecast(view, turn).begins, one.max_run if one.max_run is not None else one.expected_run
        until = None if begins is None or lasts is None else begins + lasts
        for key in wanted:
            spans[key].append(
                {
                    **visibility.task(one),
                    "from": to_datetime(begins),
                    "to": to_datetime(until),
                    "sure": False,
                    "kind": "next",
                }
            )


def _filter_trainings(tasks: set[str]) -> set[str]:
    """Return the ids of training tasks that still exist, and so have a page."""
    return {
        key for part in split_keys(tasks) for key in Task.trainings.filter(pk__in=part).values_list("pk", flat=True)
    }
