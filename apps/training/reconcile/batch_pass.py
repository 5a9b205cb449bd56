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
from apps.common.sql import Among
from apps.training.core import observation_store as seen_last
from apps.training.core.engine_access import handle_for, observe
from apps.training.models import Attempt, Finding, Task
from apps.training.reconcile import actions
from apps.training.states import WITH_ATTEMPT, Kind, State
from apps.training.states.decisions import Act, Facts, decide
from apps.training.states.limits import UNTOLD
from fermi.diagnosis import Level, hangs, loss_anomalies
from fermi.jobs.spec import Observation, Phase

log = logging.getLogger(__name__)

COLUMNS = ("id", "state", "kind", "attempt", "world_size", "max_restarts", "reason", "stop_requested_at",
           "resize_requested_at", "paused_at", "preempted_at", "preempted_for", "deadline_at",
           "cluster_id")  # fmt: skip
"""Columns of a task that the batch loads; its specification and its plans are long."""


@dataclass
class Glance:
    """Result of a batch. `quiet`: tasks to be processed again after their state's interval. `settled`: of these, tasks
    for which only reported changes matter. `rest`: tasks that need a pass. `seen`: observations of all tasks with an
    attempt, by task."""

    quiet: dict[State, list[str]] = field(default_factory=lambda: defaultdict(list))
    settled: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    seen: dict[str, Observation] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rest) + len(self.settled) + sum(map(len, self.quiet.values()))


def glance(ids: Sequence[str], claim: pass_claims.Claim, facts_of: Callable[[Task, Attempt | None], Facts]) -> Glance:
    """Process those of these tasks that are claimed, and store the observations of those that need nothing else.
    `facts_of` returns a task's facts without what needs its specification."""
    tasks = _claimed(ids, claim)
    attempts, told = _going_on(tasks), _told_of(tasks)
    found = Glance(seen=observed(tasks))
    news: list[tuple[Attempt, Observation]] = []
    for task in tasks:
        attempt = attempts.get(task.pk)
        try:
            if attempt is None or task.pk in told or not _is_quiet(task, facts_of(task, attempt), found.seen[task.pk]):
                found.rest.append(task.pk)
                continue
            if actions.is_news(attempt, found.seen[task.pk]):
                news.append((attempt, found.seen[task.pk]))
        except Exception:
            log.exception("task %s cannot be told at a glance", task.pk)
            found.rest.append(task.pk)
            continue
        if _is_settled(task, found.seen[task.pk]):
            found.settled.append(task.pk)
        else:
            found.quiet[State(task.state)].append(task.pk)
    seen_last.remember(news, claim.at)
    return found


def observed(tasks: Iterable[Task]) -> dict[str, Observation]:
    """Return the observations of tasks that have an attempt, by task id. One call per cluster observes all of its
    tasks."""
    by_cluster: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.state in WITH_ATTEMPT:
            by_cluster[task.cluster_id].append(task)
    found: dict[str, Observation] = {}
    for members in by_cluster.values():
        handles = {task.pk: handle_for(task, task.attempt) for task in members}
        seen = observe(members[0].cluster, list(handles.values()))
        found |= {pk: seen[handle.name] for pk, handle in handles.items()}
    return found


def _is_quiet(task: Task, facts: Facts, seen: Observation) -> bool:
    """Return True if a pass would only wait, and the task already says for what."""
    if any(rank.stalled for rank in seen.ranks):
        return False
    decision = decide(facts, seen)
    return decision.act is Act.WAIT and actions.is_said(task, decision)


def _is_settled(task: Task, seen: Observation) -> bool:
    """Return True if all ranks run, and time alone changes nothing soon."""
    if task.state != State.RUNNING or seen.phase is not Phase.RUNNING or seen.waiting or task.reason:
        return False
    if task.deadline_at and task.deadline_at < now() + UNTOLD:
        return False
    return all(rank.state == "running" and rank.still_since is None for rank in seen.ranks)


def _claimed(ids: Sequence[str], claim: pass_claims.Claim) -> list[Task]:
    """Return the claimed tasks with their clusters, which are few and loaded once."""
    tasks = list(Task.objects.filter(Among(ids), claimed_at=claim.at).only(*COLUMNS))
    clusters = Cluster.objects.in_bulk({task.cluster_id for task in tasks})
    for task in tasks:
        task.cluster = clusters[task.cluster_id]
    return tasks


def _going_on(tasks: Iterable[Task]) -> Mapping[str, Attempt]:
    """Return the attempts whose end is not known, by task. Drills are left out: they need a pass."""
    numbers = {task.pk: task.attempt for task in tasks if task.state in WITH_ATTEMPT and task.kind != Kind.DRILL}
    going_on = Attempt.objects.filter(Among(numbers, "task_id"), outcome="", ended_at=None)
    rows = going_on.only("task_id", "number", "outcome", "seen_mark")
    return {row.task_id: row for row in rows if row.number == numbers.get(row.task_id)}


def _told_of(tasks: Iterable[Task]) -> set[str]:
    """Return the tasks with an open finding that may end the attempt or be resolved."""
    bad = Q(code__in=hangs.CODES) | Q(code__in=loss_anomalies.CODES, level=Level.FAIL)
    rows = Finding.objects.filter(bad, Among((task.pk for task in tasks), "task_id"), until=None)
    return set(rows.values_list("task", flat=True))
