"""Processes many running tasks at once: most need nothing, or only that their observation is stored.

A pass over one task loads its specification and queries and writes for it alone. For tasks that keep running, the batch
decides by the same table (`decide_action`) from facts that are not complete, and writes for all of them together. It
leaves each task to a single pass for which another action than to wait is decided.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Q

from apps.clusters.models import Cluster
from apps.common import pass_claims
from apps.common.sql import AnyOf
from apps.training.core import observation_store as seen_last
from apps.training.core.engine_access import build_handle, observe_attempts
from apps.training.models import Attempt, Finding, Task
from apps.training.reconcile import actions, facts
from apps.training.states import STATES_WITH_ATTEMPT, TaskState
from apps.training.states.deadlines import RECONCILE_INTERVALS, WATCHED_RECONCILE_INTERVAL
from apps.training.states.decisions import ReconcileAction, decide_action
from fermi.diagnosis import Level, hangs, loss_anomalies
from fermi.jobs.spec import Observation

log = logging.getLogger(__name__)

TASK_COLUMNS = ("id", "state", "kind", "attempt", "world_size", "max_restarts", "reason", "stop_requested_at",
           "resize_requested_at", "paused_at", "preempted_at", "preempted_for", "deadline_at",
           "cluster_id")  # fmt: skip
"""Columns of a task that the batch loads; its specification and its plans are long."""


@dataclass
class BatchResult:
    """Result of a batch. `waiting`: tasks that need nothing more, by the interval after which they are processed again.
    `rest`: tasks that need a pass. `observations`: those of all tasks with an attempt, by task."""

    waiting: dict[timedelta, list[str]] = field(default_factory=lambda: defaultdict(list))
    rest: list[str] = field(default_factory=list)
    observations: dict[str, Observation] = field(default_factory=dict)


def run_batch_pass(ids: Sequence[str], claim: pass_claims.PassClaim) -> BatchResult:
    """Process those of these tasks that are claimed, and store the observations of those that need nothing else."""
    tasks = _load_claimed_tasks(ids, claim)
    attempts, may_have_end_cause = _load_open_attempts(tasks), _find_tasks_with_findings(tasks)
    found = BatchResult(observations=observe_tasks(tasks))
    news: list[tuple[Attempt, Observation]] = []
    for task in tasks:
        attempt, interval = attempts.get(task.pk), None
        if attempt is not None:
            try:
                interval = _choose_interval(
                    task, attempt, found.observations[task.pk], may_have_end_cause=task.pk in may_have_end_cause
                )
                if interval and actions.has_new_observation(attempt, found.observations[task.pk]):
                    news.append((attempt, found.observations[task.pk]))
            except Exception:
                log.exception("task %s: the batch cannot decide, a pass of its own will", task.pk)
                interval = None
        (found.waiting[interval] if interval else found.rest).append(task.pk)
    seen_last.store_observations(news, claim.at)
    return found


def _choose_interval(
    task: Task, attempt: Attempt, observation: Observation, *, may_have_end_cause: bool
) -> timedelta | None:
    """Return after which interval the task is processed again; None if it needs a pass, because there is more to do
    than to wait, or the task does not say yet for what it waits."""
    decision = decide_action(facts.build_batch_facts(task, attempt, may_have_end_cause=may_have_end_cause), observation)
    if decision.act is not ReconcileAction.WAIT or not actions.is_reason_stored(task, decision):
        return None
    return WATCHED_RECONCILE_INTERVAL if decision.steady else RECONCILE_INTERVALS[TaskState(task.state)]


def observe_tasks(tasks: Iterable[Task]) -> dict[str, Observation]:
    """Return the observations of tasks that have an attempt, by task id. One call per cluster observes all of its
    tasks."""
    by_cluster: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.state in STATES_WITH_ATTEMPT:
            by_cluster[task.cluster_id].append(task)
    found: dict[str, Observation] = {}
    for members in by_cluster.values():
        handles = {task.pk: build_handle(task, task.attempt) for task in members}
        seen = observe_attempts(members[0].cluster, list(handles.values()))
        found |= {pk: seen[handle.name] for pk, handle in handles.items()}
    return found


def _load_claimed_tasks(ids: Sequence[str], claim: pass_claims.PassClaim) -> list[Task]:
    """Return the claimed tasks with their clusters, which are few and loaded once."""
    tasks = list(Task.objects.filter(AnyOf(ids), claimed_at=claim.at).only(*TASK_COLUMNS))
    clusters = Cluster.objects.in_bulk({task.cluster_id for task in tasks})
    for task in tasks:
        task.cluster = clusters[task.cluster_id]
    return tasks


def _load_open_attempts(tasks: Iterable[Task]) -> Mapping[str, Attempt]:
    """Return the attempts whose end is not known, by task."""
    numbers = {task.pk: task.attempt for task in tasks if task.state in STATES_WITH_ATTEMPT}
    going_on = Attempt.objects.filter(AnyOf(numbers, "task_id"), outcome="", ended_at=None)
    rows = going_on.only("task_id", "number", "outcome", "seen_mark")
    return {row.task_id: row for row in rows if row.number == numbers.get(row.task_id)}


def _find_tasks_with_findings(tasks: Iterable[Task]) -> set[str]:
    """Return the tasks with an open finding that may end the attempt or be resolved."""
    bad = Q(code__in=hangs.CODES) | Q(code__in=loss_anomalies.CODES, level=Level.FAIL)
    rows = Finding.objects.filter(bad, AnyOf((task.pk for task in tasks), "task_id"), until=None)
    return set(rows.values_list("task", flat=True))
