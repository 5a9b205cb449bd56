"""Counts failures by cause (`apps.training.core.outcomes`)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet

from apps.training.core import outcomes
from apps.training.models import Attempt, Task
from apps.training.presenters import task_presenter
from apps.training.states import TaskKind, TaskState
from apps.training.states.reasons import NON_FAILURE_OUTCOMES

MAX_CAUSES = 30


class CauseCount(NamedTuple):
    """A cause with its counts. `key`: what the attempts have in common; empty for tasks that failed otherwise, and for
    attempts stored by an earlier release. `newest`: an attempt's key, or a task's where there are no attempts."""

    code: str
    key: str
    attempts: int
    tasks: int
    newest: Any


def summarize_causes(attempts: QuerySet[Attempt], tasks: QuerySet[Task], since: datetime) -> dict[str, Any]:
    """Return the most frequent causes of failures since `since` among these attempts and tasks, how many more there
    are, and how many failed in all. A task counts with its last attempt."""
    ended = attempts.filter(ended_at__gte=since, task__kind=TaskKind.TRAINING).exclude(
        outcome__in=("", *NON_FAILURE_OUTCOMES)
    )
    last = Q(task__state=TaskState.FAILED, number=F("task__attempt"))
    by_attempts: Any = (
        ended.order_by()
        .values("outcome", "cause")
        .annotate(attempts=Count("pk"), tasks=Count("pk", filter=last), newest=Max("pk"))
    )
    otherwise = tasks.filter(state=TaskState.FAILED, ended_at__gte=since).exclude(
        Exists(ended.filter(task=OuterRef("pk"), number=OuterRef("attempt")))
    )
    by_tasks: Any = otherwise.order_by().values("reason").annotate(tasks=Count("pk"), newest=Max("pk"))
    found = [
        *(
            CauseCount(row["outcome"], row["cause"], row["attempts"], row["tasks"], row["newest"])
            for row in by_attempts
        ),
        *(CauseCount(row["reason"], "", 0, row["tasks"], row["newest"]) for row in by_tasks),
    ]
    found.sort(key=lambda one: (-one.attempts - one.tasks, one.code, one.key))
    return {
        "attempts": sum(one.attempts for one in found),
        "tasks": sum(one.tasks for one in found),
        "causes": _serialize_causes(found[:MAX_CAUSES]),
        "causesLeftOut": max(len(found) - MAX_CAUSES, 0),
    }


def _serialize_causes(causes: list[CauseCount]) -> list[dict[str, Any]]:
    attempts = Attempt.objects.filter(pk__in=[one.newest for one in causes if one.attempts])
    tasks = Task.objects.filter(pk__in=[one.newest for one in causes if not one.attempts])
    examples: dict[Any, tuple[str, Mapping[str, Any]]] = {
        newest: (task, params)
        for newest, task, params in (
            *attempts.values_list("pk", "task_id", "outcome_params"),
            *tasks.values_list("pk", "pk", "reason_params"),
        )
    }
    told = []
    for one in causes:
        task, params = examples.get(one.newest, (None, {}))
        alike = (
            params
            if one.key
            else {name: value for name, value in params.items() if name not in outcomes.DISTINGUISHING_PARAMS}
        )
        told.append(
            {
                "cause": one.key or one.code,
                "code": one.code,
                "attempts": one.attempts,
                "tasks": one.tasks,
                "message": task_presenter.describe_cause(one.code, alike),
                "example": (task_presenter.serialize_reason(one.code, params) or {"message": ""})["message"],
                "taskId": task,
            }
        )
    return told
