"""Reads tasks for the API, straight from `.values()` into the API's shape."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, cast
from zlib import crc32

from django.db.models import (
    Aggregate,
    Case,
    CharField,
    F,
    JSONField,
    OuterRef,
    QuerySet,
    Subquery,
    TextField,
    When,
)
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, JSONObject

from apps.accounts import access
from apps.accounts.access import AnyUser
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.encoding import encode_json
from apps.common.errors import ApiError
from apps.common.sql import CompiledQuery, Reader, list_columns, read_json
from apps.training.core import elastic_size, log_patterns, predecessors, redaction
from apps.training.models import (
    Attempt,
    Drill,
    Event,
    Finding,
    MetricPoint,
    Node,
    Preflight,
    Task,
    TaskMedia,
    TaskParameter,
)
from apps.training.presenters import task_presenter
from apps.training.states import FINAL_STATES, TaskAction, TaskState, allowed_actions
from fermi.diagnosis import Level
from fermi.jobs import credentials
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec
from fermi.scheduler.snapshot import classify_priority

BRIEF_COLUMNS = {
    "taskId": "id",
    "taskName": "name",
    "status": "state",
    "framework": "framework",
    "distributed": "distributed",
    "nodeCount": "node_count",
    "totalGpus": "total_gpus",
    "worldSize": "world_size",
    "masterNode": "master",
    "projectId": "project_id",
    "owner": "owner__username",
    "attempt": "attempt",
    "maxRestarts": "max_restarts",
    "priority": "priority",
    "preemptible": "preemptible",
    "borrowed": "borrowed",
    "createdAt": "created_at",
    "startedAt": "started_at",
    "endedAt": "ended_at",
}
"""API names and the columns behind them; they are renamed in Python, as aliases in the query made a page a sixth
slower."""
_STEPS_IN_SPEC = KeyTextTransform("totalSteps", KeyTransform("hyperparameters", "spec"))
_LEGACY_STEPS = {"steps_in_spec": Case(When(total_steps=None, then=_STEPS_IN_SPEC), output_field=TextField())}
"""For tasks from before there was a column; reading each spec would take a tenth of a page's time."""


def query_tasks(user: AnyUser) -> QuerySet[Task, Any]:
    """Return rows for `serialize_brief`, of all training tasks that `user` may see."""
    return select_brief_columns(
        access.filter_visible(Task.trainings.all(), user), may_change=access.build_may_change_expression(user)
    )


def select_brief_columns(rows: QuerySet[Task, Any], *extra: str, **annotated: Any) -> QuerySet[Task, Any]:
    """Return rows with the columns that `serialize_brief` needs, which also needs `may_change` in each."""
    return rows.values(*_COLUMNS, *extra, **annotated, **_LEGACY_STEPS, **_WORST_FINDING)


def brief_columns(*more: str, **annotated: Reader | None) -> dict[str, Reader | None]:
    """Return the columns of `briefs`, for a compiled query."""
    return list_columns(Task, *_COLUMNS, *more, **annotated, steps_in_spec=None, worst=read_json)


_COLUMNS = (*BRIEF_COLUMNS.values(), *task_presenter.REASON_COLUMNS, "total_steps", "progress", "paused_at")


_OPEN_FINDINGS = Finding.objects.filter(task=OuterRef("pk"), attempt=OuterRef("attempt"), until=None)
_OPEN_PROBLEMS = _OPEN_FINDINGS.exclude(level=Level.INFO).order_by(
    "level", "-since"
)  # by the alphabet a failure comes first
_WORST_FINDING = {
    "worst": Subquery(_OPEN_PROBLEMS.values(said=JSONObject(code="code", level="level", params="params"))[:1])
}


def serialize_brief(row: Mapping[str, Any], lang: str | None = None) -> dict[str, Any]:
    """Return the row as the API answers it in lists."""
    progress, state, paused = row["progress"], row["state"], row["paused_at"] is not None
    return {
        **dict(zip(BRIEF_COLUMNS, _get_brief_values(row), strict=True)),
        "priorityClass": _get_priority_class(row["priority"]),
        "paused": paused,
        "reason": task_presenter.explain_task(row, lang),
        "step": progress.get("step"),
        "totalSteps": progress.get("total") or _get_total_steps(row),
        "estimatedEndAt": _get_estimated_end(row),
        "loss": progress.get("loss"),
        "lossNotFinite": "loss" in progress and progress["loss"] is None,
        "finding": task_presenter.serialize_worst_finding(row["worst"], lang) if state not in FINAL_STATES else None,
        "allowedActions": _get_actions(state, row["may_change"], paused),
    }


def _get_total_steps(row: Mapping[str, Any]) -> int | None:
    told = row["steps_in_spec"]
    if told is None:
        return cast("int | None", row["total_steps"])
    return int(told) if str(told).isdecimal() else None


def _get_estimated_end(row: Mapping[str, Any]) -> datetime | None:
    """Return when the training is expected to end: of a running attempt, and unless that time has passed."""
    attempt, ends = row["progress"].get("ends", (0, 0))
    if row["state"] != TaskState.RUNNING or attempt != row["attempt"]:
        return None
    found = datetime.fromtimestamp(ends, UTC)
    return found if found > now() else None


_get_brief_values = itemgetter(*BRIEF_COLUMNS.values())


@lru_cache(1000)
def _get_priority_class(priority: int) -> str:
    return classify_priority(priority).name.lower()


@cache
def _get_actions(state: str, may_change: bool, paused: bool) -> tuple[TaskAction, ...]:
    return tuple(allowed_actions(TaskState(state), changes=may_change, paused=paused))


@dataclass(frozen=True, slots=True)
class StreamState:
    """State of a task that its live stream compares with what the reader has. `fingerprint` changes with `status` and
    with the observed ranks; `event` and `metric` are the newest ids, 0 for none. `again`: in how many seconds the same
    row may say something else."""

    status: dict[str, Any]
    fingerprint: int
    event: int
    metric: int
    again: float = math.inf


def read_stream_states(reader: access.UserRights, asked: Collection[str], lang: str) -> dict[str, StreamState]:
    """Return the states of these tasks by id, in one query, as every open page polls them. Tasks that the reader may
    not see are left out."""
    rows = query_tasks(reader).filter(pk__in=asked).annotate(**_NEWEST_COLUMNS)
    return {row["id"]: _build_stream_state(row, lang) for row in rows}


def _build_stream_state(row: dict[str, Any], lang: str) -> StreamState:
    event, metric, seen = (row.pop(name) for name in _NEWEST_COLUMNS)
    status = serialize_brief(row, lang)
    return StreamState(
        status, crc32(encode_json([status, seen])), event or 0, metric or 0, task_presenter.get_recheck_delay(row)
    )


_NEWEST_COLUMNS = {
    "event_": Subquery(Event.objects.filter(task=OuterRef("pk")).order_by("-pk").values("pk")[:1]),
    "metric_": Subquery(MetricPoint.objects.filter(task=OuterRef("pk")).order_by("-pk").values("pk")[:1]),
    "seen_": Subquery(Attempt.objects.filter(task=OuterRef("pk"), number=OuterRef("attempt")).values("seen")[:1]),
}


_DATA_COLUMNS = {
    "datasetId": F("dataset_version__dataset"),
    "datasetVersionId": F("dataset_version"),
    "modelId": F("model"),
    "datasetName": F("dataset_version__dataset__name"),
    "datasetVersionName": F("dataset_version__name"),
    "modelName": F("model__name"),
}
"""The dataset and the model with their names; empty if the script reads none of the platform."""
_CONTEXT_COLUMNS = {
    "projectName": F("project__name"),
    "minRunSeconds": F("min_run_seconds"),
    "maxRunSeconds": F("max_run_seconds"),
    "preflightId": Subquery(Preflight.objects.filter(before=OuterRef("pk")).values("pk")[:1]),
    "drillId": Subquery(Drill.objects.filter(task=OuterRef("pk")).order_by("-run__created_at").values("pk")[:1]),
}
_STORED_COLUMNS = ("spec", "request", "summary", "warnings")


class _EnvironmentsByRank(Aggregate):
    """Aggregate of a task's nodes: the environments by node rank, as one JSON object."""

    function = "JSONB_OBJECT_AGG"
    output_field = JSONField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, function="JSON_GROUP_OBJECT", **extra)


_TASK_NODES = Node.objects.filter(task=OuterRef("pk")).order_by().values("task")
_ENVIRONMENTS = _TASK_NODES.annotate(
    by_rank=_EnvironmentsByRank(Cast("node_rank", CharField()), "environment_id")
).values("by_rank")


def _query_detail(task: str, reader: access.UserRights) -> QuerySet[Task, Any]:
    rows = access.filter_visible(Task.trainings.filter(pk=task), reader)
    stored = select_brief_columns(rows, *_STORED_COLUMNS, may_change=access.build_may_change_expression(reader))
    return stored.annotate(**_DATA_COLUMNS, **_CONTEXT_COLUMNS, environments_=Subquery(_ENVIRONMENTS))


_DETAIL = CompiledQuery(
    lambda rights, /, task, user=0: _query_detail(task, rights.with_key(user)),
    brief_columns(
        *_STORED_COLUMNS, may_change=bool, **dict.fromkeys((*_DATA_COLUMNS, *_CONTEXT_COLUMNS)), environments_=read_json
    ),
)
_ATTEMPTS = CompiledQuery(
    lambda task: (
        Attempt.objects.filter(task=task)
        .order_by("number")
        .annotate(seen_=Case(When(number=F("task__attempt"), then=F("seen")), default=None))
    ),
    list_columns(Attempt, "number", "master_port", "outcome", "outcome_params", "resume_from", "created_at",
            "running_at", "ended_at", seen_=read_json),
)  # fmt: skip


def get_task_detail(user: User, task_id: str) -> dict[str, Any]:
    """Return everything about the task as `user` may read it. Raises ApiError 404 if they may not see it. Two queries,
    the task first: if it has ended, its attempt has, too."""
    found = _DETAIL.first(access.get_query_shape(user), task=task_id, **access.build_user_params(user))
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    attempts = _ATTEMPTS.fetch(task=task_id)
    job = JobSpec.from_json(found["spec"])
    waits = TaskState(found["state"]) in (TaskState.INITIALIZING, TaskState.QUEUED)
    newest = attempts[-1] if attempts else None
    culprit = newest["outcome_params"].get("rank") if newest else None
    environments = found["environments_"] or {}
    select = (found["request"].get("distributedConfig") or {}).get("select")
    placements = place_nodes(job.nodes, job.master) if environments or select is None else []
    seen = {rank["rank"]: rank for rank in ((newest["seen_"] or {}).get("ranks", []) if newest else [])}
    return {
        **serialize_brief(found),
        **_read_record(task_id),
        **{name: found[name] for name in (*_DATA_COLUMNS, *_CONTEXT_COLUMNS)},
        "summary": found["summary"],
        "warnings": [
            task_presenter.serialize_warning(warning["code"], warning["params"])
            for warning in found["warnings"]
            if waits or warning["code"] not in task_presenter.QUEUE_WARNINGS
        ],
        "proposal": task_presenter.serialize_proposal(job),
        "elastic": elastic_size.serialize_elastic(Task.objects.select_related("cluster").get(pk=task_id), job)
        if job.elastic
        else None,
        "batch": task_presenter.serialize_batch(job),
        "after": predecessors.serialize_predecessors(task_id) if job.after else [],
        "select": select,
        "nodes": [
            {
                "nodeRank": at.node_rank,
                "environmentId": environments.get(str(at.node_rank)),
                "name": at.node.name,
                "zone": at.node.zone,
                "gpuType": at.node.gpu_type,
                "processes": at.node.processes,
                "emulated": at.node.emulated,
                "ranks": list(at.ranks),
                "runsIn": task_presenter.serialize_run_location(at.node),
            }
            for at in placements
        ],
        "ranks": [
            {
                "rank": rank,
                "localRank": local,
                "nodeRank": at.node_rank,
                "device": local if at.node.has_cuda else None,
                "state": seen.get(rank, {}).get("state", "waiting"),
                "pid": seen.get(rank, {}).get("pid"),
                "exitCode": seen.get(rank, {}).get("exit_code"),
                "ending": task_presenter.classify_ending(seen.get(rank, {}), culprit),
            }
            for at in placements
            for local, rank in enumerate(at.ranks)
        ],
        "attempts": [_serialize_attempt(attempt) for attempt in attempts],
        "request": redaction.redact_request(found["request"], found["project_id"], user),
        "parameters": list(
            TaskParameter.objects.filter(task=task_id).order_by("name").values("name", "value", "number", "source")
        ),
    }


def _read_record(task_id: str) -> dict[str, Any]:
    """Return what people say of the task as a run. Its rows belong to `apps.runs`, a layer above."""
    columns = ("run__note", "run__archived_at", "tags__name")
    rows = list(Task.objects.filter(pk=task_id).order_by("tags__name").values_list(*columns))
    note, archived, _ = rows[0] if rows else (None, None, None)
    return {"tags": [tag for _, _, tag in rows if tag], "note": note or "", "archivedAt": archived}


def _serialize_attempt(attempt: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "number": attempt["number"],
        "masterPort": attempt["master_port"],
        "outcome": task_presenter.serialize_reason(attempt["outcome"], attempt["outcome_params"]),
        "failedRank": attempt["outcome_params"].get("rank"),
        "resumeFrom": attempt["resume_from"] or None,
        "createdAt": attempt["created_at"],
        "runningAt": attempt["running_at"],
        "endedAt": attempt["ended_at"],
    }


def get_plan(task: Task, number: int | None, user: User | None) -> dict[str, Any] | None:
    """Return what was rendered for an attempt, as `user` may read it; None if there is no such attempt."""
    attempts = task.attempts.filter(number=number or task.attempt)
    attempt = attempts.values("number", "plan").first()
    if attempt is None:
        return None
    files, artifacts = task_presenter.serialize_artifacts(
        credentials.redact_secrets(
            attempt["plan"]["artifacts"], redaction.find_hidden_variables(task.request, task.project_id, user)
        )
    )
    return {"attempt": attempt["number"], "files": files, "artifacts": artifacts}


def query_events(task_id: str, after: int = 0) -> QuerySet[Event, Any]:
    """Return the events with a higher id than `after`, oldest first."""
    return Event.objects.filter(task=task_id, pk__gt=after).order_by("pk").values(
        "id", "attempt", "at", "kind", "code", "params"
    )  # fmt: skip


_POINT_COLUMNS = ("id", "attempt", "rank", "step", "at", "values", "source", "pattern")


def query_media(task_id: str, filters: Mapping[str, Any]) -> QuerySet[TaskMedia, Any]:
    """Return what the task's script logged besides numbers."""
    rows = TaskMedia.objects.filter(task=task_id)
    chosen = {name: filters[name] for name in ("kind", "name") if filters.get(name)}
    return rows.filter(**chosen).values("attempt", "rank", "kind", "name", "step", "path", "source", "at")


class PointPage(NamedTuple):
    """Points as users want to see them. `last`: the id of the last row that was read, 0 without rows; `more`: there are
    further ones."""

    points: list[dict[str, Any]]
    last: int
    more: bool


def list_metrics(task_id: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return points in the order in which they were stored; `next` is what to pass as `after` to continue, None at the
    end."""
    page = read_points(task_id, filters)
    return {"items": page.points, "next": page.last if page.more else None}


def read_points(task_id: str, filters: Mapping[str, Any]) -> PointPage:
    """Return a page of points in the order in which they were stored."""
    rows = MetricPoint.objects.filter(task=task_id, pk__gt=filters["after"])
    for name in ("attempt", "rank", "source"):
        if filters.get(name) is not None:
            rows = rows.filter(**{name: filters[name]})
    limit = filters["limit"]
    found = list(rows.order_by("pk").values(*_POINT_COLUMNS)[: limit + 1])
    last, more = found[:limit][-1]["id"] if found else 0, len(found) > limit
    points = log_patterns.apply_patterns(task_id, found[:limit])
    for point in points:
        del point["pattern"]
    if names := filters.get("names"):
        for point in points:
            point["values"] = {name: value for name, value in point["values"].items() if name in names}
        points = [point for point in points if point["values"]]
    return PointPage(points, last, more)
