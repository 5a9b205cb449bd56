"""Brings tasks from their present state to the desired one, one pass at a time.

    claim the due row ─▶ load ─▶ observe the engine (no transaction open) ─▶ decide (pure) ─▶ act (idempotent) ─▶ record

Level-triggered: a pass needs nothing but the database and the engine. It acts before it records, so a crash between the
two is repaired by the next pass, which does the same thing under the same name. A pass that has lost its claim ends
without a further write: each transaction checks the claim first (`transitions.lock_task`,
`transitions.filter_unchanged`).
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Prefetch, QuerySet

from apps.common import clock_jumps, pass_claims
from apps.common.clock import now
from apps.common.sql import Among
from apps.training.core import observation_store as seen_last
from apps.training.core import transitions, wakeups
from apps.training.core.engine_access import cause
from apps.training.core.transitions import Stale
from apps.training.models import Attempt, Task, Watch
from apps.training.queue import scheduling_pass
from apps.training.reconcile import actions, batch_pass, diagnosis, restarts
from apps.training.reconcile.watched import Heard
from apps.training.states import FINAL, WITH_ATTEMPT, State
from apps.training.states.decisions import Act, Decision, Facts, decide, hanging_now
from apps.training.states.limits import CLAIM, LOOK_AGAIN, UNTOLD
from apps.training.states.reasons import Reason
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Observation

log = logging.getLogger(__name__)

STEPS_PER_PASS = 12
"""More than the longest way through the states; only a bug could need more."""
PARTS = 4
"""Number of groups in which tasks that run steadily come back, so that they do not come back all at once."""
_heard = Heard()


def reconcile(*task_ids: str) -> None:
    """Run a pass over those of these tasks that are due and not claimed."""
    if len(task_ids) > 1:
        _together(Task.objects.filter(Among(task_ids)))
        return
    for task_id in task_ids:
        _one(_Waiting(task_id))


def sweep(limit: int = 1000) -> int:
    """Run a pass over everything that is due, up to `limit`; return how many tasks there were."""
    clock_jumps.settle()
    scheduling_pass.decide_if_due()
    _look_instead(limit)
    return _together(pass_claims.waiting(Task.objects.all(), CLAIM).order_by("due_at"), limit)


class _Waiting(NamedTuple):
    """A task that needs a pass. `seen`, its observation, is used only if the task is still due since `due_at`, so no
    other pass had it meanwhile."""

    pk: str
    seen: Observation | None = None
    due_at: datetime | None = None


def _together(tasks: QuerySet[Task], limit: int | None = None) -> int:
    """Process the tasks, those with an attempt as one claimed batch first, which is enough for most. Each of the others
    is claimed when its pass begins, so that parallel processes share them, and none holds a task that it does not come
    to. Return how many there were."""
    states = dict(tasks.values_list("pk", "state")[:limit])
    looked_at = [pk for pk, state in states.items() if state in WITH_ATTEMPT]
    passes = _glance(looked_at) if looked_at else []
    passes += [_Waiting(pk) for pk, state in states.items() if state not in WITH_ATTEMPT]
    for waiting in passes:
        try:
            _one(waiting)
        except Exception:  # one bad row never stops the rest
            log.exception("task %s: the pass failed; it is tried again in %s", waiting.pk, CLAIM)
    return len(states)


def _glance(ids: Sequence[str]) -> list[_Waiting]:
    """Process a batch and release the tasks that need nothing more. Return the others, which are still due."""
    claim = pass_claims.Claim(Task.objects.filter(Among(ids)), CLAIM)
    with claim.kept():
        found = batch_pass.glance(ids, claim, _at_a_glance)
    for state, quiet in found.quiet.items():
        _let_go(quiet, claim, LOOK_AGAIN[state])
    _settle(found.settled, claim)
    moment = _let_go(found.rest, claim, timedelta())
    return [_Waiting(pk, found.seen.get(pk), moment) for pk in found.rest]


def _one(waiting: _Waiting) -> None:
    rows = Task.objects.filter(pk=waiting.pk)
    claim = pass_claims.Claim(rows if waiting.due_at is None else rows.filter(due_at=waiting.due_at), CLAIM)
    task = _row(waiting.pk, claim) if claim.taken else None
    if task is not None:
        _pass(task, claim, waiting.seen)


def _settle(ids: Sequence[str], claim: pass_claims.Claim) -> None:
    """Release tasks that run steadily: while watchers observe them they come back late, and not all at once."""
    if not ids or not _watched():
        _let_go(ids, claim, LOOK_AGAIN[State.RUNNING])
        return
    for first in range(parts := min(PARTS, len(ids))):
        _let_go(ids[first::parts], claim, UNTOLD * random.uniform(0.5, 1))


def _look_instead(limit: int) -> None:
    """Make running tasks due at the usual interval if watchers do not observe them, up to `limit` at a time."""
    if _watched():
        return
    moment = now()
    late = Task.objects.filter(state=State.RUNNING, claimed_at=None, due_at__gt=moment + LOOK_AGAIN[State.RUNNING])
    if ids := list(late.values_list("pk", flat=True)[:limit]):
        pass_claims.update(Task.objects.filter(Among(ids), claimed_at=None, due_at__gt=moment), due_at=moment)


def _watched() -> bool:
    row = Watch.objects.filter(pk=1).values_list("members", "looked").first()
    return row is not None and _heard.all_look(*row, LOOK_AGAIN[State.RUNNING])


def _let_go(ids: Sequence[str], claim: pass_claims.Claim, wait: timedelta) -> datetime:
    """Release the tasks; those that a hint has moved meanwhile are due at once. Return when the others are due."""
    at = now() + wait
    if ids and claim.let_go(Task.objects.filter(Among(ids)), len(ids), at):
        wakeups.again(ids)
    return at


def _row(task_id: str, claim: pass_claims.Claim) -> Task | None:
    """Return the task with what a pass reads, as `select_related` and `prefetch_related` would load it; None if it is
    gone. Raises StaleTaskError if the pass has lost it."""
    attempts = Prefetch("attempts", Attempt.objects.defer("plan"))
    task = Task.objects.select_related("cluster").prefetch_related(attempts).filter(pk=task_id).first()
    if task is None:
        return None
    if task.claimed_at != claim.at and State(task.state) not in FINAL:
        raise Stale(task_id)
    task.claim = claim
    return task


def _facts(task: Task) -> tuple[Facts, Attempt | None]:
    attempt = (
        next((a for a in task.attempts.all() if a.number == task.attempt), None) if task.state in WITH_ATTEMPT else None
    )
    ends = [cause(task.cluster, one.outcome) for one in task.attempts.all()]
    if task.spec.get("elastic"):
        ends = restarts.of_elastic(ends)
    facts = _at_a_glance(task, attempt)
    runs = attempt and facts.state is State.RUNNING and not attempt.outcome
    return replace(
        facts,
        attempts_left=task.max_restarts + 1 - restarts.charged(ends),
        found=diagnosis.of(task, attempt) if attempt and runs else None,
    ), attempt


def _at_a_glance(task: Task, attempt: Attempt | None) -> Facts:
    """Return the facts without what matters only at an attempt's end, and without its findings."""
    return Facts(
        state=State(task.state),
        stop_requested=task.stop_requested_at is not None,
        resize_requested=task.resize_requested_at is not None,
        leave=_leave(task),
        overdue=task.deadline_at is not None and task.deadline_at <= now(),
        outcome=cause(task.cluster, attempt.outcome, attempt.outcome_params) if attempt and attempt.outcome else None,
        attempt=task.attempt,
        moment=(now() - clock_jumps.lately()).timestamp(),
    )


def _leave(task: Task) -> Cause | None:
    """Return why the task has to give its environments back for now; None if it has not."""
    asked = Reason.PAUSED if task.paused_at else Reason.GAVE_WAY if task.preempted_at else None
    return cause(task.cluster, asked, task.preempted_for) if asked else None


def _pass(task: Task, claim: pass_claims.Claim, seen: Observation | None) -> None:
    """Run actions until the task has to wait, then set when it is due. A pass that raises is tried again after
    PASS_CLAIM_TIMEOUT, or when a hint comes."""
    try:
        with claim.kept():
            wait = _walk(task, claim, seen)
    except Stale:
        wait = timedelta()
    except Exception:
        _let_go([task.pk], claim, CLAIM)
        raise
    _let_go([task.pk], claim, wait)


def _walk(task: Task, claim: pass_claims.Claim, seen: Observation | None) -> timedelta:
    for _ in range(STEPS_PER_PASS):
        facts, attempt = _facts(task)
        if attempt is None:
            seen = None
        elif seen is None:
            seen = batch_pass.observed([task])[task.pk]
        if attempt and seen and diagnosis.may_hang(attempt, seen):
            facts = replace(facts, site=diagnosis.site(task, seen), on_hang=diagnosis.on_hang(task))
            with transitions.owned(task):
                diagnosis.note_hang(task, attempt, hanging_now(facts, seen))
        decision = decide(facts, seen)
        if attempt and seen and actions.is_news(attempt, seen):
            seen_last.remember([(attempt, seen)], claim.at)
        try:
            wait = _do(task, attempt, decision, facts)
        except BackendError as error:
            log.warning("task %s: %s cannot be done now: %s", task.pk, decision.act, error)
            wait = actions.wait_for_engine(task, Cause(error.code, error.params))
        if wait is not None:
            return wait
        seen = None if decision.act in (Act.LEASE, Act.CLOSE, Act.SUBMIT) else seen
        again = _row(task.pk, claim)
        if again is None:
            raise Task.DoesNotExist(task.pk)
        task = again
        if State(task.state) not in LOOK_AGAIN:
            return timedelta()
    raise RuntimeError(f"task {task.pk} does not come to rest in {task.state}")


def _do(task: Task, attempt: Attempt | None, decision: Decision, facts: Facts) -> timedelta | None:
    """Carry out the decision; return how long to wait until the task is processed again, None to go on at once."""
    match decision.act:
        case Act.WAIT:
            return actions.wait(task, decision)
        case Act.PREPARE:
            return actions.prepare(task)
        case Act.LEASE:
            return actions.lease(task)
        case Act.END:
            return actions.end(task, decision)
    assert attempt is not None
    match decision.act:
        case Act.SUBMIT:
            return actions.submit(task, attempt, decision)
        case Act.MOVE:
            return actions.advance(task, attempt, decision)
        case Act.RECORD:
            return actions.record_outcome(task, attempt, decision)
        case Act.CANCEL:
            return actions.cancel(task, attempt, decision)
        case Act.CLOSE:
            return actions.close(task, attempt, decision)
    raise ValueError(decision.act)
