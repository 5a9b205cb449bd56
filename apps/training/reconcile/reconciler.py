"""Brings tasks from where they are to where they should be, one pass at a time.

    claim the due row ─▶ load ─▶ observe the engine (no transaction open) ─▶ decide (pure) ─▶ act (idempotent) ─▶ record

Level-triggered: a pass needs nothing but the database and the engine. It acts before it records, so a crash between the
two is repaired by the next pass, which does the same thing under the same name. Two passes over one task at the same
time do no harm: acts are idempotent and records are compare-and-set.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Prefetch, QuerySet

from apps.common import due
from apps.common.clock import now
from apps.training.ground.launching import cause, handle_for, observe
from apps.training.ground.transitions import Stale
from apps.training.models import Attempt, Task
from apps.training.queue import deciding
from apps.training.reconcile import restarts, steps, verdicts
from apps.training.states import WITH_ATTEMPT, State
from apps.training.states.decisions import Act, Decision, Facts, decide, hanging_now
from apps.training.states.limits import CLAIM, LOOK_AGAIN
from apps.training.states.reasons import Reason
from fermi.launch.errors import BackendError
from fermi.launch.spec import Cause, Observation

log = logging.getLogger(__name__)

STEPS_PER_PASS = 12
"""More than the longest way through the states; only a bug could need it."""


def reconcile(task_id: str) -> None:
    """A pass over one task, if it is due and nobody has claimed it."""
    claim = _claim([task_id])
    for task in _load([task_id], claim):
        _pass(task, claim, None)


def sweep(limit: int = 1000) -> int:
    """A pass over everything that is due; one observation per cluster serves all its tasks. Returns how many there
    were."""
    deciding.decide_if_due()
    ids = list(Task.objects.filter(due_at__lte=now()).order_by("due_at").values_list("pk", flat=True)[:limit])
    if not ids:
        return 0
    claim = _claim(ids)
    tasks = _load(ids, claim)
    seen = _observe(tasks)
    quiet: dict[State, list[str]] = defaultdict(list)
    for task in tasks:
        try:
            facts, attempt = _facts(task)
            if attempt and not steps.is_news(attempt, now_seen := seen[task.pk]):
                decision = decide(facts, now_seen)
                still = not any(rank.stalled for rank in now_seen.ranks)
                if still and decision.act is Act.WAIT and steps.is_said(task, decision):
                    quiet[facts.state].append(task.pk)
                    continue
            _pass(task, claim, seen.get(task.pk))
        except Exception:  # one bad row never stops the rest; its claim is its back-off
            log.exception("task %s: the pass failed; it is tried again in %s", task.pk, CLAIM)
    for state, ids in quiet.items():
        _let_go(ids, claim, LOOK_AGAIN[state])
    return len(tasks)


def _claim(ids: Iterable[str]) -> datetime:
    return due.claim(Task.objects.filter(pk__in=ids), CLAIM)


def _let_go(ids: Iterable[str], claim: datetime, wait: timedelta) -> None:
    due.let_go(Task.objects.filter(pk__in=ids), claim, wait)


def _load(ids: Iterable[str], claim: datetime) -> list[Task]:
    return list(_rows().filter(pk__in=ids, due_at=claim))


def _rows() -> QuerySet[Task]:
    """Tasks with what a pass looks at; a plan is large, and only submitting needs it."""
    attempts = Prefetch("attempts", Attempt.objects.defer("plan"))
    return Task.objects.select_related("cluster").prefetch_related(attempts)


def _facts(task: Task) -> tuple[Facts, Attempt | None]:
    state = State(task.state)
    attempt = (
        next((a for a in task.attempts.all() if a.number == task.attempt), None) if state in WITH_ATTEMPT else None
    )
    ends = [cause(task.cluster, one.outcome) for one in task.attempts.all()]
    if task.spec.get("elastic"):
        ends = restarts.of_elastic(ends)
    return Facts(
        state=state,
        stop_requested=task.stop_requested_at is not None,
        resize_requested=task.resize_requested_at is not None,
        leave=_leave(task),
        overdue=task.deadline_at is not None and task.deadline_at <= now(),
        outcome=cause(task.cluster, attempt.outcome, attempt.outcome_params) if attempt and attempt.outcome else None,
        attempts_left=task.max_restarts + 1 - restarts.charged(ends),
        attempt=task.attempt,
        moment=now().timestamp(),
        found=verdicts.of(task, attempt) if attempt and state is State.RUNNING and not attempt.outcome else None,
    ), attempt


def _leave(task: Task) -> Cause | None:
    """Why it is to give its environments back for now."""
    asked = Reason.PAUSED if task.paused_at else Reason.GAVE_WAY if task.preempted_at else None
    return cause(task.cluster, asked, task.preempted_for) if asked else None


def _observe(tasks: Iterable[Task]) -> dict[str, Observation]:
    """By task id, for those that have an attempt."""
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


def _pass(task: Task, claim: datetime, seen: Observation | None) -> None:
    """Walks on until there is nothing to do but wait, then sets when to look again."""
    try:
        wait = _walk(task, seen)
    except Stale:
        wait = timedelta()
    _let_go([task.pk], claim, wait)


def _walk(task: Task, seen: Observation | None) -> timedelta:
    for _ in range(STEPS_PER_PASS):
        facts, attempt = _facts(task)
        if attempt is None:
            seen = None
        elif seen is None:
            seen = _observe([task])[task.pk]
        if attempt and seen and verdicts.may_hang(attempt, seen):
            facts = replace(facts, site=verdicts.site(task), on_hang=verdicts.on_hang(task))
            verdicts.note_hang(task, attempt, hanging_now(facts, seen))
        decision = decide(facts, seen)
        if attempt and seen and steps.is_news(attempt, seen):
            steps.remember(attempt, seen)
        try:
            wait = _do(task, attempt, decision, facts)
        except BackendError as error:
            log.warning("task %s: %s cannot be done now: %s", task.pk, decision.act, error)
            wait = steps.wait_for_engine(task, Cause(error.code, error.params))
        if wait is not None:
            return wait
        seen = None if decision.act in (Act.LEASE, Act.CLOSE, Act.SUBMIT) else seen
        task = _rows().get(pk=task.pk)
        if State(task.state) not in LOOK_AGAIN:
            return timedelta()
    raise RuntimeError(f"task {task.pk} does not come to rest in {task.state}")


def _do(task: Task, attempt: Attempt | None, decision: Decision, facts: Facts) -> timedelta | None:
    """Returns how long to wait before looking again, or None to go on at once."""
    match decision.act:
        case Act.WAIT:
            return steps.wait(task, decision)
        case Act.PREPARE:
            return steps.prepare(task)
        case Act.LEASE:
            return steps.lease(task)
        case Act.END:
            return steps.end(task, decision)
    assert attempt is not None
    match decision.act:
        case Act.SUBMIT:
            return steps.submit(task, attempt, decision)
        case Act.MOVE:
            return steps.advance(task, attempt, decision)
        case Act.RECORD:
            return steps.record_outcome(task, attempt, decision)
        case Act.CANCEL:
            return steps.cancel(task, attempt, decision)
        case Act.CLOSE:
            return steps.close(task, attempt, decision)
    raise ValueError(decision.act)
