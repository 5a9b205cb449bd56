"""Gathers from the database what `decide_action` decides by."""

from dataclasses import replace
from datetime import timedelta

from apps.common import clock_jumps
from apps.common.clock import now
from apps.training.core.engine_access import build_cause
from apps.training.models import Attempt, Task
from apps.training.reconcile import diagnosis, restarts
from apps.training.states import STATES_WITH_ATTEMPT, TaskKind, TaskState
from apps.training.states.deadlines import WATCHED_RECONCILE_INTERVAL
from apps.training.states.decisions import TaskFacts
from apps.training.states.reasons import TaskReason
from fermi.jobs.spec import Cause, Observation


def get_newest_attempt(task: Task) -> Attempt | None:
    """Return the attempt that a task in its present state has; None in a state without one."""
    numbers = {one.number: one for one in task.attempts.all()}
    return numbers.get(task.attempt) if task.state in STATES_WITH_ATTEMPT else None


def build_facts(task: Task, attempt: Attempt | None, observation: Observation | None) -> TaskFacts:
    """Return the complete facts. `site` is set only if a rank does not advance, or did not when last observed."""
    ends = [build_cause(task.cluster, one.outcome) for one in task.attempts.all()]
    if task.spec.get("elastic"):
        ends = restarts.mark_losses_free(ends)
    facts = replace(
        build_batch_facts(task, attempt),
        complete=True,
        attempts_left=task.max_restarts + 1 - restarts.count_charged_ends(ends),
    )
    if attempt and facts.state is TaskState.RUNNING and not attempt.outcome:
        facts = replace(facts, end_cause=diagnosis.find_end_cause(task, attempt))
    if attempt and observation and diagnosis.may_hang(attempt, observation):
        layout, policy = diagnosis.build_gang_layout(task, observation), diagnosis.get_hang_policy(task)
        facts = replace(facts, site=layout, on_hang=policy)
    return facts


def build_batch_facts(task: Task, attempt: Attempt | None, *, may_have_end_cause: bool = False) -> TaskFacts:
    """Return the facts that follow from the columns which a batch loads; makes no query."""
    left = task.deadline_at - now() if task.deadline_at else timedelta.max
    return TaskFacts(
        state=TaskState(task.state),
        stop_requested=task.stop_requested_at is not None,
        resize_requested=task.resize_requested_at is not None,
        leave=_find_leave_cause(task),
        overdue=left <= timedelta(),
        ends_soon=left < WATCHED_RECONCILE_INTERVAL,
        outcome=build_cause(task.cluster, attempt.outcome, attempt.outcome_params)
        if attempt and attempt.outcome
        else None,
        attempt=task.attempt,
        moment=(now() - clock_jumps.get_recent_jump()).timestamp(),
        complete=False,
        may_have_end_cause=may_have_end_cause or task.kind == TaskKind.DRILL,
    )


def _find_leave_cause(task: Task) -> Cause | None:
    """Return why the task has to give its environments back for now; None if it has not."""
    asked = TaskReason.PAUSED if task.paused_at else TaskReason.GAVE_WAY if task.preempted_at else None
    return build_cause(task.cluster, asked, task.preempted_for) if asked else None
