"""What several runs can be compared by: the names of their curves and media, and their parameters."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from apps.runs.machines import NAMES
from apps.training.public import CurveReader, Task, TaskMedia, TaskParameter
from fermi.metrics.sources import find_loss

MAX_PARAMETERS = 200
"""Those that differ between the runs first, then by name."""
MAX_NAMES, MAX_MEDIA = 1000, 500


def describe_runs(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the answer of `GET /runs/comparison`."""
    reader = CurveReader(tasks)
    ids = [task.pk for task in tasks]
    values: dict[str, dict[str, str]] = {task: {} for task in ids}
    for task, name, value in TaskParameter.objects.filter(task__in=ids).values_list("task_id", "name", "value"):
        values[task][name] = value
    parameters = _sort_parameters(values)[:MAX_PARAMETERS]
    return {
        "complete": reader.is_complete,
        "runs": [
            {
                "taskId": task.pk,
                "taskName": task.name,
                "status": task.state,
                "framework": task.framework,
                "createdAt": task.created_at,
                "startedAt": task.started_at,
                "endedAt": task.ended_at,
                "parameters": {name: values[task.pk][name] for name, _ in parameters if name in values[task.pk]},
            }
            for task in tasks
        ],
        "metrics": _count_metrics(reader.list_names()),
        "parameters": [{"name": name, "differs": differs} for name, differs in parameters],
        "media": _list_media(ids),
        "machine": list(NAMES),
    }


def _sort_parameters(values: Mapping[str, Mapping[str, str]]) -> list[tuple[str, bool]]:
    """Return the names of parameters, each with whether runs differ in it."""
    names = {name for mine in values.values() for name in mine}
    found = [(name, len({mine.get(name) for mine in values.values()}) > 1) for name in names]
    return sorted(found, key=lambda one: (not one[1], one[0]))


def _count_metrics(names: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    """Return the names of curves: the training loss first, then those that most runs have."""
    counts = Counter(name for mine in names.values() for name in mine)
    loss = find_loss(dict.fromkeys(counts, 0.0))
    ordered = sorted(counts, key=lambda name: (name != loss, -counts[name], name))
    return [{"name": name, "runs": counts[name]} for name in ordered[:MAX_NAMES]]


def _list_media(ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the runs logged besides numbers, by kind and name; what most runs have comes first."""
    rows = TaskMedia.objects.filter(task__in=ids).order_by().values_list("kind", "name", "task_id").distinct()
    counts = Counter((kind, name) for kind, name, _ in rows)
    ordered = sorted(counts, key=lambda one: (-counts[one], one))
    return [{"kind": kind, "name": name, "runs": counts[kind, name]} for kind, name in ordered[:MAX_MEDIA]]
