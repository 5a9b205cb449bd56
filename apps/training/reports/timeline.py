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
from apps.common.sql import slices
from apps.scheduling.models import Reservation, Usage
from apps.training.models import Task
from apps.training.queue import outlook as looking
from apps.training.queue.outlook import View
from apps.training.reports.queue import Eyes, ends, moment, outlook

Spans = defaultdict[str, list[dict[str, Any]]]
LONGEST = timedelta(days=100)
MOST_PAST = 20_000
"""Most ended holds that are returned, newest first."""


def of(user: User, begins: datetime, ends: datetime, project: str = "") -> dict[str, Any]:
    """Return the timeline between the two moments, of the environments that `user` may use. Raises ApiError 400 if they
    are in the wrong order or too far apart."""
    if not begins < ends:
        raise ApiError(400, "TIMES_BACKWARDS", "to")
    if ends - begins > LONGEST:
        raise ApiError(400, "TIMELINE_TOO_LONG", "to", days=LONGEST.days)
    rows = selectors.seen_by(user)
    environments = list(_environments(rows.filter(project=project) if project else rows))
    keys = {row["id"] for row in environments}
    view, visibility, spans = looking.view(), Eyes(user), Spans(list)
    _past(spans, view, visibility, keys, begins, ends)
    _held(spans, view, visibility, keys)
    _reserved(spans, visibility, keys, begins, ends)
    _next(spans, view, visibility, keys)
    within = {key: [one for one in found if _is_within(one, begins, ends)] for key, found in spans.items()}
    shown = [{"zone": row.pop("zoneName"), **row, "spans": within.get(row["id"], [])} for row in environments]
    return {"environments": shown}


def _environments(rows: QuerySet[DevEnvironment]) -> QuerySet[DevEnvironment, Any]:
    named: dict[str, Any] = {"zoneName": F("zone__name"), "gpuType": F("gpu_type"), "gpuCount": F("gpu_count")}
    return rows.order_by("zone__name", "name", "pk").values("id", "name", **named)


def _is_within(span: Mapping[str, Any], begins: datetime, ends: datetime) -> bool:
    return (span["from"] is None or span["from"] < ends) and (span["to"] is None or span["to"] > begins)


def _past(spans: Spans, view: View, visibility: Eyes, keys: set[str], begins: datetime, ends: datetime) -> None:
    rows = Usage.objects.filter(since__lt=ends, until__gt=begins, environment__isnull=False).order_by("-since")
    columns = ("environment_id", "task", "task_name", "project_id", "since", "until")
    found = [row for row in rows.values_list(*columns)[:MOST_PAST] if row[0] in keys]
    known = _trainings({row[1] for row in found})
    for key, task, name, project, since, until in reversed(found):
        now = view.holders.get(key)
        if now is not None and now.task == task and since.timestamp() >= now.since:
            continue  # it is still going on
        seen = visibility.sees(project)
        spans[key].append(
            {"taskId": task if seen and task in known else None, "name": name if seen else "", "from": since,
             "to": until, "sure": True, "kind": "held"}
        )  # fmt: skip


def _held(spans: Spans, view: View, visibility: Eyes, keys: set[str]) -> None:
    known = _trainings(set(view.held))
    for one in view.scene.held:
        told = visibility.task(one)
        told["taskId"] = told["taskId"] if one.task in known else None
        for key in keys & set(one.places):
            spans[key].append(
                {**told, "from": moment(one.since), "to": moment(ends(view, one)), "kind": "held",
                 "sure": one.until is not None and one.task not in view.gives_way}
            )  # fmt: skip


def _reserved(spans: Spans, visibility: Eyes, keys: set[str], begins: datetime, ends: datetime) -> None:
    rows = Reservation.objects.filter(begins_at__lt=ends, ends_at__gt=begins).order_by("begins_at")
    columns = ("environments", "project_id", "project__name", "note", "begins_at", "ends_at")
    for key, project, name, note, since, until in rows.values_list(*columns):
        if key not in keys:
            continue
        told = (note or name or "") if project is None or visibility.sees(project) else ""
        kind = "maintenance" if project is None else "reserved"
        spans[key].append({"taskId": None, "name": told, "from": since, "to": until, "sure": True, "kind": kind})


def _next(spans: Spans, view: View, visibility: Eyes, keys: set[str]) -> None:
    for turn in view.decision.turns:
        if not (wanted := keys & {*turn.start, *turn.needs}):
            continue
        one = view.waiting[turn.task]
        begins, lasts = outlook(view, turn).begins, one.max_run if one.max_run is not None else one.expected_run
        until = None if begins is None or lasts is None else begins + lasts
        for key in wanted:
            spans[key].append(
                {**visibility.task(one), "from": moment(begins), "to": moment(until), "sure": False, "kind": "next"}
            )


def _trainings(tasks: set[str]) -> set[str]:
    """Return the ids of training tasks that still exist, and so have a page."""
    return {key for part in slices(tasks) for key in Task.trainings.filter(pk__in=part).values_list("pk", flat=True)}
