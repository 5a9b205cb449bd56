"""Collects what is known of a task as the facts that `fermi.diagnosis.diagnose` needs."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from django.db.models import Max, Min

from apps.accounts import access
from apps.accounts.models import User
from apps.clusters.models import Lease
from apps.common.clock import now
from apps.training.core.checkpoints import AUTO
from apps.training.core.engine_access import build_cause
from apps.training.models import Attempt, Checkpoint, Task
from apps.training.presenters import rank_progress, task_presenter
from apps.training.reports import queue
from apps.training.states import FINAL_STATES, TaskState
from apps.training.states.reasons import TaskReason
from fermi.diagnosis import Action, Evidence, Finding, Level, Where, diagnose
from fermi.jobs.spec import Cause, RankStatus

MAX_FINDINGS = 50


def build_facts(task: Task, user: User) -> diagnose.TaskFacts:
    """Return the facts of the task, which is loaded with its cluster. What other tasks hold is named as far as `user`
    may see them."""
    state = TaskState(task.state)
    attempts = list(task.attempts.defer("plan"))
    newest = attempts[-1] if attempts else None
    begins = task.due_at if state is TaskState.QUEUED and task.reason == TaskReason.RESTARTING else None
    return diagnose.TaskFacts(
        state=state,
        since=_to_timestamp(task.state_since),
        moment=_to_timestamp(now()),
        nodes=list(task.nodes.values_list("name", flat=True)),
        world_size=task.world_size,
        reason=_find_reason(task),
        ends_at=_to_timestamp(task.deadline_at) if task.deadline_at else None,
        begins_at=_to_timestamp(begins) if begins else None,
        attempt=task.attempt,
        max_attempts=task.max_restarts + 1,
        attempts=_build_attempts(task, attempts),
        next_step=_find_saved_step(task, task.attempt + 1) if state is TaskState.QUEUED and attempts else None,
        ranks=[_load_rank(entry) for entry in newest.seen.get("ranks", ())]
        if newest and state not in FINAL_STATES
        else (),
        pulses=rank_progress.read_progress(task) if state is TaskState.RUNNING else {},
        stored=_load_findings(task, attempts),
        holders=_list_holders(task, user) if state is TaskState.QUEUED and not task.paused_at else (),
        line=queue.build_queue_position(task, user) if state is TaskState.QUEUED and task.in_line_at else None,
        step=task.progress.get("step"),
        stepped_at=_find_print_time(task) if state is TaskState.RUNNING else None,
        total_steps=task.progress.get("total") or task.spec.get("hyperparameters", {}).get("totalSteps"),
    )


def _find_reason(task: Task) -> Cause | None:
    silent = task_presenter.find_silence({"claimed_at": task.claimed_at})
    code, params = (TaskReason.PROCESS_SILENT, silent) if silent else (task.reason, task.reason_params)
    if not code and task.state == TaskState.QUEUED and task.in_line_at:
        code, params = queue.find_reason(task)
    return build_cause(task.cluster, code, params) if code else None


def _build_attempts(task: Task, attempts: Iterable[Attempt]) -> list[diagnose.PastAttempt]:
    """Return the attempts; how far each came, and from where, is queried only if there were several, or another
    follows."""
    rows = list(attempts)
    reached: Mapping[int, int | None] = {}
    begun: Mapping[int, int] = {}
    if len(rows) > 1 or task.state == TaskState.QUEUED:
        steps = task.metrics.filter(rank=0).values("attempt").annotate(first=Min("step"), last=Max("step"))
        known = list(steps.values_list("attempt", "first", "last"))
        begun = {number: first for number, first, _ in known}
        reached = {task.attempt: task.progress.get("step"), **{number: last for number, _, last in known}}
    return [
        diagnose.PastAttempt(
            number=one.number,
            began=_to_timestamp(one.created_at),
            outcome=build_cause(task.cluster, one.outcome, one.outcome_params) if one.outcome else None,
            ended=_to_timestamp(one.ended_at) if one.ended_at else None,
            resumed_from=one.resume_from,
            from_step=_find_saved_step(task, one.number, one.resume_from) if one.resume_from else None,
            first_step=begun.get(one.number),
            last_step=reached.get(one.number),
        )
        for one in rows
    ]


def _find_saved_step(task: Task, number: int, path: str = AUTO) -> int | None:
    """Return the step of that checkpoint, or of the newest one before the attempt `number`; None if there is none."""
    rows = Checkpoint.objects.filter(task=task, attempt__lt=number)
    return (rows if path == AUTO else rows.filter(path=path)).values_list("step", flat=True).first()


def _find_print_time(task: Task) -> float | None:
    """Return when the newest attempt printed its newest metrics; None if it printed none."""
    newest = task.metrics.order_by("-pk").values_list("attempt", "at").first()
    return _to_timestamp(newest[1]) if newest and newest[0] == task.attempt else None


def _load_rank(entry: Mapping[str, Any]) -> RankStatus:
    """Return the rank as it was stored, perhaps by another release."""
    known = {one.name for one in fields(RankStatus)}
    return RankStatus(**{name: value for name, value in entry.items() if name in known})


def _load_findings(task: Task, attempts: Iterable[Attempt]) -> list[diagnose.StoredFinding]:
    ended = {one.number: one.ended_at for one in attempts if one.number != task.attempt}
    told = []
    for row in task.findings.order_by("-since")[:MAX_FINDINGS]:
        finding = Finding(
            row.code,
            Level(row.level),
            row.params,
            where=[Where(**where) for where in row.where],
            since=_to_timestamp(row.since),
            evidence=[Evidence(**{**one, "where": Where(**(one.get("where") or {}))}) for one in row.evidence],
            actions=[Action(**one) for one in row.actions],
            key=row.key,
        )
        until = row.until or ended.get(row.attempt)
        told.append(diagnose.StoredFinding(finding, row.attempt, _to_timestamp(until) if until else None))
    return told


def _list_holders(task: Task, user: User) -> list[diagnose.EnvironmentHolder]:
    environments = task.nodes.values("environment")
    leases = list(
        Lease.objects.filter(environment__in=environments).exclude(holder=task.pk).select_related("environment")
    )
    holders = Task.objects.filter(pk__in=[lease.holder for lease in leases]).select_related("owner")
    known = {other.pk: other for other in access.filter_visible(holders, user)}
    return [
        diagnose.EnvironmentHolder(
            environment=lease.environment.name,
            task=lease.holder,
            since=_to_timestamp(lease.since),
            name=known[lease.holder].name if lease.holder in known else "",
            owner=known[lease.holder].owner.username if lease.holder in known else "",
        )
        for lease in leases
    ]


def _to_timestamp(moment: datetime) -> float:
    return moment.timestamp()
