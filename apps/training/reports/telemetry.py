"""Reads what a task's nodes and ranks use, and what an environment used."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q

from apps.accounts.models import User
from apps.clusters.models import DevEnvironment, Lease
from apps.common.clock import now
from apps.scheduling.models import Usage
from apps.telemetry import presenters, reader, subjects
from apps.telemetry.presenters import SeriesTarget
from apps.training.core import release
from apps.training.core.engine_access import get_backend
from apps.training.models import Task
from apps.training.reports.queue import VisibilityFilter
from apps.training.states.reasons import NON_FAILURE_OUTCOMES
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.telemetry.metrics import RANK

MAX_TASKS = 500
"""Most tasks that are listed for an environment, newest first."""
_GPU_METRICS = {"gpu": "gpu", "gpuMemory": "gpu_memory", "gpuMemoryTotal": "gpu_memory_total", "power": "power",
             "temperature": "temperature"}  # fmt: skip
_RANK_METRICS = {"cpu": "rank_cpu", "memory": "rank_memory"}


def read_task_series(task: Task, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the series of the task from its first attempt on, and of its environments for the time in which it held
    them: before and in between they belonged to other tasks."""
    attempts = list(task.attempts.values_list("number", "outcome", "created_at", "ended_at"))
    begins = attempts[0][2] if attempts else task.created_at
    asked = presenters.parse_query(query, since=begins, until=task.ended_at)
    nodes, ranks = set(query.get("node") or ()), set(query.get("rank") or ())

    def wanted(of: str, node: int | None, rank: int | None) -> bool:
        if of == RANK and nodes and rank is not None and rank not in of_nodes:
            return False
        return (not nodes or node is None or node in nodes) and (not ranks or rank is None or rank in ranks)

    held = release.list_hold_spans(task, now())
    places = {
        subject: place._replace(during=held.get(subjects.get_subject_id(subject), []))
        if place.node is not None
        else place
        for subject, place in _list_targets(task).items()
    }
    of_nodes = {rank for place in places.values() if place.node in nodes for rank in place.ranks}
    told = presenters.serialize_series(asked, places, wanted, expected=task.world_size)
    return {**told, "marks": _build_marks(attempts, asked.begins, asked.ends)}


def read_current_use(task: Task) -> dict[str, Any]:
    """Return the newest values of each rank, in few queries. Environments that the task does not hold now are left
    out."""
    has = set(subjects.make_environment_subjects(Lease.objects.filter(holder=task.pk).values_list("pk", flat=True)))
    places = {subject: place for subject, place in _list_targets(task).items() if place.node is None or subject in has}
    found = reader.read_newest(list(places))
    ranks: dict[int, dict[str, Any]] = {}
    for subject, place in places.items():
        known = found.get(subject)
        if known is None:
            continue
        for place_of_gpu, rank in enumerate(place.ranks):
            _add_values(ranks, rank, known.values, _GPU_METRICS, place_of_gpu)
        if subject == subjects.make_task_subject(task.pk):
            for rank in range(task.world_size):
                _add_values(ranks, rank, known.values, _RANK_METRICS, rank)
    at = max((one.at for one in found.values()), default=None)
    return {
        "taskId": task.pk,
        "at": None if at is None else datetime.fromtimestamp(at, UTC),
        "emulated": any(one.emulated for one in found.values()),
        "ranks": [ranks[rank] for rank in sorted(ranks)],
    }


def read_environment_series(environment: DevEnvironment, user: User, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the series of the environment, and the tasks that held it meanwhile."""
    asked = presenters.parse_query(query)
    places = {
        subjects.make_environment_subject(environment.pk): SeriesTarget(0),
        **_list_host_target(environment.cluster),
    }
    told = presenters.serialize_series(asked, places, expected=max(environment.gpu_count, 4))
    return {**told, "tasks": list_holders(environment, user, asked.begins, asked.ends)}


def _list_targets(task: Task) -> dict[str, SeriesTarget]:
    found: dict[str, SeriesTarget] = {
        subjects.make_task_subject(task.pk): SeriesTarget(None),
        **_list_host_target(task.cluster),
    }
    first = 0
    for node, environment, processes in task.nodes.values_list("node_rank", "environment", "processes"):
        if environment:
            found[subjects.make_environment_subject(environment)] = SeriesTarget(node, range(first, first + processes))
        first += processes
    return found


def _list_host_target(cluster: Any) -> dict[str, SeriesTarget]:
    """Return the series of this machine, if all nodes of the cluster are this machine."""
    try:
        return {subjects.make_host_subject(cluster.pk): SeriesTarget(None)} if get_backend(cluster).is_local else {}
    except (BackendError, UnknownNameError):
        return {}


def _build_marks(attempts: list[Any], begins: datetime, ends: datetime) -> list[dict[str, Any]]:
    found = []
    for number, outcome, created_at, ended_at in attempts:
        found.append({"at": created_at, "code": "ATTEMPT_STARTED", "attempt": number, "outcome": "", "failed": False})
        if ended_at:
            failed = outcome not in ("", *NON_FAILURE_OUTCOMES)
            found.append(
                {"at": ended_at, "code": "ATTEMPT_ENDED", "attempt": number, "outcome": outcome, "failed": failed}
            )
    return [one for one in found if begins <= one["at"] <= ends]


def _add_values(
    ranks: dict[int, dict[str, Any]], rank: int, values: Mapping[str, float], names: Mapping[str, str], index: int
) -> None:
    told = {name: values[key] for name, metric in names.items() if (key := f"{metric}:{index}") in values}
    if told:
        nothing = dict.fromkeys((*_GPU_METRICS, *_RANK_METRICS))
        ranks.setdefault(rank, {"rank": rank, **nothing}).update(told)


def list_holders(environment: DevEnvironment, user: User, begins: datetime, ends: datetime) -> list[dict[str, Any]]:
    """Return the tasks that held the environment; names only of tasks that the user may see."""
    visibility = VisibilityFilter(user)
    rows = Usage.objects.filter(Q(environment=environment), since__lt=ends, until__gt=begins).order_by("-since")
    columns = ("task", "task_name", "project_id", "since", "until")
    spans = [(*row[:3], row[3], row[4]) for row in rows.values_list(*columns)[:MAX_TASKS]][::-1]
    lease = Lease.objects.filter(environment=environment, since__lt=ends).first()
    held = Task.objects.filter(pk=lease.holder).values_list("pk", "name", "project_id").first() if lease else None
    if lease and held:
        spans = [one for one in spans if one[0] != held[0] or one[3] < lease.since]
        spans.append((*held, lease.since, None))
    known = set(Task.trainings.filter(pk__in={one[0] for one in spans}).values_list("pk", flat=True))
    visible = {project for _, _, project, _, _ in spans if visibility.can_see(project)}
    return [
        {
            "id": task if project in visible and task in known else None,
            "name": name if project in visible else "",
            "from": since,
            "to": until,
        }
        for task, name, project, since, until in spans
    ]
