"""Asks tasks to give way: to another task, or because their environments are reserved or under maintenance now."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.clusters.models import Lease
from apps.common.clock import now
from apps.training.core import transitions, wakeups
from apps.training.core.engine_access import is_scheduled_by_engine
from apps.training.models import Task
from apps.training.states import STATES_WITH_ATTEMPT, TaskKind, TaskState

WHY_RESERVED, WHY_MAINTAINED = "RESERVATION", "MAINTENANCE"


def request_preemption(task_id: str, params: Mapping[str, Any]) -> bool:
    """Ask the task to give way, once; return False if it was asked before or is not preemptible now. Its own pass ends
    its attempt. Pre-flight tests and drills are short and end by themselves."""
    with transaction.atomic():
        active = Task.objects.filter(
            pk=task_id,
            kind=TaskKind.TRAINING,
            state__in=[TaskState.QUEUED, *STATES_WITH_ATTEMPT - {TaskState.STOPPING}],
            preempted_at=None,
            paused_at=None,
            stop_requested_at=None,
        )
        if not active.update(preempted_at=now(), preempted_for=dict(params)):
            return False
        task = Task.objects.get(pk=task_id)
        transitions.record_event(task.pk, task.attempt, "state", "PREEMPTION_REQUESTED", params)
        wakeups.enqueue_task(task.pk)
    return True


def preempt_for_reservations(moment: datetime) -> list[str]:
    """Preempt tasks on environments where a reservation of another project, or maintenance, has begun: they save, and
    resume elsewhere or afterwards. Return their ids. Tasks scheduled by an engine's own queue are left out: it would
    only start them there again."""
    inside = Lease.objects.filter(
        environment__reservations__begins_at__lte=moment, environment__reservations__ends_at__gt=moment
    ).values_list(
        "holder", "environment__name", "environment__reservations__project_id",
        "environment__reservations__ends_at", "environment__reservations__note",
    )  # fmt: skip
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for holder, *window in inside:
        found[holder].append(window)
    asked = []
    for task in Task.objects.filter(pk__in=found).select_related("cluster"):
        foreign = [window for window in found[task.pk] if window[1] != task.project_id]
        if not foreign or is_scheduled_by_engine(task):
            continue
        maintained = next((window for window in foreign if window[1] is None), None)
        params = {
            "why": WHY_MAINTAINED if maintained else WHY_RESERVED,
            "maintained" if maintained else "reserved": True,  # for whom, only members of that project may know
            "by": (maintained[3] or "–") if maintained else "",
            "environment": ", ".join(sorted({window[0] for window in foreign})),
            "until": max(window[2] for window in foreign).timestamp(),
        }
        if request_preemption(task.pk, params):
            asked.append(task.pk)
    return asked
