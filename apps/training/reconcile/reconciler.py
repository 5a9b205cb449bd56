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
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Prefetch, QuerySet

from apps.common import clock_jumps, pass_claims
from apps.common.clock import now
from apps.common.sql import AnyOf
from apps.training.core import observation_store as seen_last
from apps.training.core import transitions, wakeups
from apps.training.core.transitions import StaleTaskError
from apps.training.models import Attempt, Task, Watch
from apps.training.queue import scheduling_pass
from apps.training.reconcile import actions, batch_pass, diagnosis, facts
from apps.training.reconcile.engine_watch import WatcherHeartbeats
from apps.training.states import FINAL_STATES, STATES_WITH_ATTEMPT, TaskState
from apps.training.states.deadlines import PASS_CLAIM_TIMEOUT, RECONCILE_INTERVALS, WATCHED_RECONCILE_INTERVAL
from apps.training.states.decisions import ReconcileAction, ReconcileDecision, decide_action, judge_hang
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Observation

log = logging.getLogger(__name__)

MAX_ACTIONS_PER_PASS = 12
"""More than the longest way through the states; only a bug could need more."""
STEADY_GROUPS = 4
"""Number of groups in which tasks that run steadily come back, so that they do not come back all at once."""
_watcher_heartbeats = WatcherHeartbeats()


def reconcile_tasks(*task_ids: str) -> None:
    """Run a pass over those of these tasks that are due and not claimed."""
    if len(task_ids) > 1:
        _reconcile_batch(Task.objects.filter(AnyOf(task_ids)))
        return
    for task_id in task_ids:
        _reconcile_one(_PendingPass(task_id))


def reconcile_due_tasks(limit: int = 1000) -> int:
    """Run a pass over everything that is due, up to `limit`; return how many tasks there were."""
    clock_jumps.handle_jump()
    scheduling_pass.run_if_due()
    _enqueue_unwatched(limit)
    return _reconcile_batch(pass_claims.filter_due(Task.objects.all(), PASS_CLAIM_TIMEOUT).order_by("due_at"), limit)


class _PendingPass(NamedTuple):
    """A task that needs a pass. `observation` is used only if the task is still due since `due_at`, so no
    other pass had it meanwhile."""

    pk: str
    observation: Observation | None = None
    due_at: datetime | None = None


def _reconcile_batch(tasks: QuerySet[Task], limit: int | None = None) -> int:
    """Process the tasks, those with an attempt as one claimed batch first, which is enough for most. Each of the others
    is claimed when its pass begins, so that parallel processes share them, and none holds a task that it does not come
    to. Return how many there were."""
    states = dict(tasks.values_list("pk", "state")[:limit])
    looked_at = [pk for pk, state in states.items() if state in STATES_WITH_ATTEMPT]
    passes = _run_batch_pass(looked_at) if looked_at else []
    passes += [_PendingPass(pk) for pk, state in states.items() if state not in STATES_WITH_ATTEMPT]
    for waiting in passes:
        try:
            _reconcile_one(waiting)
        except Exception:  # one bad row never stops the rest
            log.exception("task %s: the pass failed; it is tried again in %s", waiting.pk, PASS_CLAIM_TIMEOUT)
    return len(states)


def _run_batch_pass(ids: Sequence[str]) -> list[_PendingPass]:
    """Process a batch and release the tasks that need nothing more. Return the others, which are still due."""
    claim = pass_claims.PassClaim(Task.objects.filter(AnyOf(ids)), PASS_CLAIM_TIMEOUT)
    with claim.kept():
        found = batch_pass.run_batch_pass(ids, claim)
    for interval, waiting in found.waiting.items():
        if interval == WATCHED_RECONCILE_INTERVAL:
            _release_steady(waiting, claim)
        else:
            _release_claim(waiting, claim, interval)
    moment = _release_claim(found.rest, claim, timedelta())
    return [_PendingPass(pk, found.observations.get(pk), moment) for pk in found.rest]


def _reconcile_one(waiting: _PendingPass) -> None:
    rows = Task.objects.filter(pk=waiting.pk)
    claim = pass_claims.PassClaim(
        rows if waiting.due_at is None else rows.filter(due_at=waiting.due_at), PASS_CLAIM_TIMEOUT
    )
    task = _load_task(waiting.pk, claim) if claim.taken else None
    if task is not None:
        _run_pass(task, claim, waiting.observation)


def _release_steady(ids: Sequence[str], claim: pass_claims.PassClaim) -> None:
    """Release tasks that run steadily: while watchers observe them they come back late, and not all at once."""
    if not _is_watched():
        _release_claim(ids, claim, RECONCILE_INTERVALS[TaskState.RUNNING])
        return
    for first in range(parts := min(STEADY_GROUPS, len(ids))):
        _release_claim(ids[first::parts], claim, WATCHED_RECONCILE_INTERVAL * random.uniform(0.5, 1))


def _enqueue_unwatched(limit: int) -> None:
    """Make running tasks due at the usual interval if watchers do not observe them, up to `limit` at a time."""
    if _is_watched():
        return
    moment = now()
    late = Task.objects.filter(
        state=TaskState.RUNNING, claimed_at=None, due_at__gt=moment + RECONCILE_INTERVALS[TaskState.RUNNING]
    )
    if ids := list(late.values_list("pk", flat=True)[:limit]):
        pass_claims.update_rows(Task.objects.filter(AnyOf(ids), claimed_at=None, due_at__gt=moment), due_at=moment)


def _is_watched() -> bool:
    row = Watch.objects.filter(pk=1).values_list("members", "looked").first()
    return row is not None and _watcher_heartbeats.have_all_looked(*row, RECONCILE_INTERVALS[TaskState.RUNNING])


def _release_claim(ids: Sequence[str], claim: pass_claims.PassClaim, wait: timedelta) -> datetime:
    """Release the tasks; those that a hint has moved meanwhile are due at once. Return when the others are due."""
    at = now() + wait
    if ids and claim.release(Task.objects.filter(AnyOf(ids)), len(ids), at):
        wakeups.enqueue_hinted_tasks(ids)
    return at


def _load_task(task_id: str, claim: pass_claims.PassClaim) -> Task | None:
    """Return the task with what a pass reads, as `select_related` and `prefetch_related` would load it; None if it is
    gone. Raises StaleTaskError if the pass has lost it."""
    attempts = Prefetch("attempts", Attempt.objects.defer("plan"))
    task = Task.objects.select_related("cluster").prefetch_related(attempts).filter(pk=task_id).first()
    if task is None:
        return None
    if task.claimed_at != claim.at and TaskState(task.state) not in FINAL_STATES:
        raise StaleTaskError(task_id)
    task.claim = claim
    return task


def _run_pass(task: Task, claim: pass_claims.PassClaim, observation: Observation | None) -> None:
    """Run actions until the task has to wait, then set when it is due. A pass that raises is tried again after
    PASS_CLAIM_TIMEOUT, or when a hint comes."""
    try:
        with claim.kept():
            wait = _run_actions(task, claim, observation)
    except StaleTaskError:
        wait = timedelta()
    except Exception:
        _release_claim([task.pk], claim, PASS_CLAIM_TIMEOUT)
        raise
    _release_claim([task.pk], claim, wait)


def _run_actions(task: Task, claim: pass_claims.PassClaim, observation: Observation | None) -> timedelta:
    for _ in range(MAX_ACTIONS_PER_PASS):
        attempt = facts.get_newest_attempt(task)
        if attempt is None:
            observation = None
        elif observation is None:
            observation = batch_pass.observe_tasks([task])[task.pk]
        known = facts.build_facts(task, attempt, observation)
        if attempt and observation and known.site:
            with transitions.lock_task(task):
                diagnosis.record_hang(task, attempt, judge_hang(known, observation))
        decision = decide_action(known, observation)
        if attempt and observation and actions.has_new_observation(attempt, observation):
            seen_last.store_observations([(attempt, observation)], claim.at)
        try:
            wait = _run_action(task, attempt, decision)
        except BackendError as error:
            log.warning("task %s: %s cannot be done now: %s", task.pk, decision.act, error)
            wait = actions.report_engine_error(task, Cause(error.code, error.params))
        if wait is not None:
            return wait
        observation = (
            None
            if decision.act in (ReconcileAction.LEASE, ReconcileAction.CLOSE, ReconcileAction.SUBMIT)
            else observation
        )
        again = _load_task(task.pk, claim)
        if again is None:
            raise Task.DoesNotExist(task.pk)
        task = again
        if TaskState(task.state) not in RECONCILE_INTERVALS:
            return timedelta()
    raise RuntimeError(f"task {task.pk} does not come to rest in {task.state}")


def _run_action(task: Task, attempt: Attempt | None, decision: ReconcileDecision) -> timedelta | None:
    """Carry out the decision; return how long to wait until the task is processed again, None to go on at once."""
    match decision.act:
        case ReconcileAction.WAIT:
            return actions.report_waiting(task, decision)
        case ReconcileAction.PREPARE:
            return actions.prepare_task(task)
        case ReconcileAction.LEASE:
            return actions.lease_environments(task)
        case ReconcileAction.END:
            return actions.end_task(task, decision)
    assert attempt is not None
    match decision.act:
        case ReconcileAction.SUBMIT:
            return actions.submit_attempt(task, attempt, decision)
        case ReconcileAction.MOVE:
            return actions.advance_state(task, attempt, decision)
        case ReconcileAction.RECORD:
            return actions.record_outcome(task, attempt, decision)
        case ReconcileAction.CANCEL:
            return actions.cancel_attempt(task, attempt, decision)
        case ReconcileAction.CLOSE:
            return actions.close_attempt(task, attempt, decision)
    raise ValueError(decision.act)
