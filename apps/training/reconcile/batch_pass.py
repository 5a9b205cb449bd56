"""Processes many running tasks at once: most need nothing, or only that their observation is stored.

A pass over one task loads its specification and queries and writes for it alone. For tasks that keep running, the batch
decides the same (`decide_action`) from a few columns, and writes for all of them together. Whatever it cannot decide is
left to a single pass.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Q

from apps.clusters.models import Cluster
from apps.common import pass_claims
from apps.common.clock import now
from apps.common.sql import AnyOf
from apps.training.core import observation_store as seen_last
from apps.training.core.engine_access import build_handle, observe_attempts
from apps.training.models import Attempt, Finding, Task
from apps.training.reconcile import actions
from apps.training.states import STATES_WITH_ATTEMPT, TaskKind, TaskState
from apps.training.states.decisions import ReconcileAction, TaskFacts, decide_action
from apps.training.states.limits import WATCHED_RECONCILE_INTERVAL
from fermi.diagnosis import Level, hangs, loss_anomalies
from fermi.jobs.spec import Observation, Phase

log = logging.getLogger(__name__)

TASK_COLUMNS = ("id", "state", "kind", "attempt", "world_size", "max_restarts", "reason", "stop_requested_at",
           "resize_requested_at", "paused_at", "preempted_at", "preempted_for", "deadline_at",
           "cluster_id")  # fmt: skip
"""Columns of a task that the batch loads; its specification and its plans are long."""


@dataclass
class BatchResult:
    """Result of a batch. `quiet`: tasks to be processed again after their state's interval. `settled`: of these, tasks
    for which only reported changes matter. `rest`: tasks that need a pass. `seen`: observations of all tasks with an
    attempt, by task."""

    quiet: dict[TaskState, list[str]] = field(default_factory=lambda: defaultdict(list))
    settled: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    seen: dict[str, Observation] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rest) + len(self.settled) + sum(map(len, self.quiet.values()))


def run_batch_pass(
    ids: Sequence[str], claim: pass_claims.PassClaim, facts_of: Callable[[Task, Attempt | None], TaskFacts]
) -> BatchResult:
    """Process those of these tasks that are claimed, and store the observations of those that need nothing else.
    `facts_of` returns a task's facts without what needs its specification."""
    tasks = _load_claimed_tasks(ids, claim)
    attempts, told = _load_open_attempts(tasks), _find_tasks_with_findings(tasks)
    found = BatchResult(seen=observe_tasks(tasks))
    news: list[tuple[Attempt, Observation]] = []
    for task in tasks:
        attempt = attempts.get(task.pk)
        try:
            if (
                attempt is None
                or task.pk in told
                or not _needs_no_action(task, facts_of(task, attempt), found.seen[task.pk])
            ):
                found.rest.append(task.pk)
                continue
            if actions.has_new_observation(attempt, found.seen[task.pk]):
                news.append((attempt, found.seen[task.pk]))
        except Exception:
            log.exception("task %s cannot be told at a glance", task.pk)
            found.rest.append(task.pk)
            continue
        if _runs_steadily(task, found.seen[task.pk]):
            found.settled.append(task.pk)
        else:
            found.quiet[TaskState(task.state)].append(task.pk)
    seen_last.store_observations(news, claim.at)
    return found


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


def _needs_no_action(task: Task, facts: TaskFacts, observation: Observation) -> bool:
    """Return True if a pass would only wait, and the task already says for what."""
    if any(rank.stalled for rank in observation.ranks):
        return False
    decision = decide_action(facts, observation)
    return decision.act is ReconcileAction.WAIT and actions.is_reason_stored(task, decision)


def _runs_steadily(task: Task, observation: Observation) -> bool:
    """Return True if all ranks run, and time alone changes nothing soon."""
    if task.state != TaskState.RUNNING or observation.phase is not Phase.RUNNING or observation.waiting or task.reason:
        return False
    if task.deadline_at and task.deadline_at < now() + WATCHED_RECONCILE_INTERVAL:
        return False
    return all(rank.state == "running" and rank.still_since is None for rank in observation.ranks)


def _load_claimed_tasks(ids: Sequence[str], claim: pass_claims.PassClaim) -> list[Task]:
    """Return the claimed tasks with their clusters, which are few and loaded once."""
    tasks = list(Task.objects.filter(AnyOf(ids), claimed_at=claim.at).only(*TASK_COLUMNS))
    clusters = Cluster.objects.in_bulk({task.cluster_id for task in tasks})
    for task in tasks:
        task.cluster = clusters[task.cluster_id]
    return tasks


def _load_open_attempts(tasks: Iterable[Task]) -> Mapping[str, Attempt]:
    """Return the attempts whose end is not known, by task. Drills are left out: they need a pass."""
    numbers = {
        task.pk: task.attempt for task in tasks if task.state in STATES_WITH_ATTEMPT and task.kind != TaskKind.DRILL
    }
    going_on = Attempt.objects.filter(AnyOf(numbers, "task_id"), outcome="", ended_at=None)
    rows = going_on.only("task_id", "number", "outcome", "seen_mark")
    return {row.task_id: row for row in rows if row.number == numbers.get(row.task_id)}


def _find_tasks_with_findings(tasks: Iterable[Task]) -> set[str]:
    """Return the tasks with an open finding that may end the attempt or be resolved."""
    bad = Q(code__in=hangs.CODES) | Q(code__in=loss_anomalies.CODES, level=Level.FAIL)
    rows = Finding.objects.filter(bad, AnyOf((task.pk for task in tasks), "task_id"), until=None)
    return set(rows.values_list("task", flat=True))
