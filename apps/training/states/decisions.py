"""Decides what to do with a task: a pure function of what is stored and what the engine reports. No clock, no database,
no engine calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from apps.training.states import TaskState
from apps.training.states.reasons import TaskReason
from fermi.diagnosis import Level, hangs
from fermi.engines.failure_cause import list_hanging_ranks
from fermi.jobs.causes import RANK_CODES
from fermi.jobs.spec import Cause, Observation, Phase, RankStatus


class ReconcileAction(StrEnum):
    """What a reconciler pass can do with a task; `reconcile.actions` has one function for each."""

    WAIT = "wait"  # and store why, if the engine cannot be asked
    LOAD = "load"  # load the complete facts and decide again
    PREPARE = "prepare"  # initializing: check what it needs
    LEASE = "lease"  # queued: take all environments and start an attempt, or store who holds them
    SUBMIT = "submit"  # starting: submit what has not started (again), and store why it waits
    MOVE = "move"  # change the state while the attempt goes on
    RECORD = "record"  # store the attempt's outcome, once its end or its true reason is known
    CANCEL = "cancel"  # have the engine end what is left of the attempt
    CLOSE = "close"  # nothing of the attempt is left: restart or end
    END = "end"  # end a task without an attempt


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What the database says of a task, as input of `decide_action`.

    `attempt`: number of the newest attempt; `outcome`: that attempt's outcome, once its end is known; `leave`: why the
    task has to give its environments back for now (paused or preempted); `end_cause`: why the attempt has to end,
    according to its output; `overdue`: the deadline has passed; `moment`: now, in unix seconds; `site`: where the
    attempt runs, for hang detection; `on_hang`: what to do when it hangs for certain.

    `complete`: False for facts that were loaded for many tasks at once, without `attempts_left`, `end_cause`, `site`
    and
    `on_hang`; `may_have_end_cause`: whether `end_cause` could then be set; `ends_soon`: the deadline passes within
    WATCHED_RECONCILE_INTERVAL.
    """

    state: TaskState
    stop_requested: bool = False
    overdue: bool = False
    outcome: Cause | None = None
    attempts_left: int = 0
    attempt: int = 0
    moment: float = 0.0
    resize_requested: bool = False
    leave: Cause | None = None
    end_cause: Cause | None = None
    site: hangs.GangLayout | None = None
    on_hang: str = "report"
    complete: bool = True
    may_have_end_cause: bool = False
    ends_soon: bool = False


@dataclass(frozen=True, slots=True)
class ReconcileDecision:
    """The action to take, with the target state and the cause where the action needs them. `steady`: all ranks run, and
    time alone changes nothing soon."""

    act: ReconcileAction
    to: TaskState | None = None
    cause: Cause = field(default_factory=lambda: Cause(""))
    steady: bool = False


_WITHOUT_ATTEMPT = {
    TaskState.INITIALIZING: (ReconcileAction.PREPARE, TaskReason.INITIALIZE_TIMEOUT),
    TaskState.QUEUED: (ReconcileAction.LEASE, TaskReason.QUEUE_TIMEOUT),
}
"""States without an attempt: what a pass does in them, and why the task ends when their time is over."""


def decide_action(facts: TaskFacts, observation: Observation | None) -> ReconcileDecision:
    """Return what to do next with a task.

    `observation` is None in the states that have no attempt, and only in those. Returned causes carry what is declared
    of them. LOAD is returned only for facts that are not complete.
    """
    if facts.state in _WITHOUT_ATTEMPT:
        return _decide_without_attempt(facts, *_WITHOUT_ATTEMPT[facts.state])
    assert observation is not None
    if not facts.complete and _needs_complete_facts(facts, observation):
        return ReconcileDecision(ReconcileAction.LOAD)
    if facts.outcome is not None:
        return _decide_ended_attempt(facts, facts.outcome, observation)
    if facts.state is TaskState.STARTING and observation.phase is Phase.SUCCEEDED:
        return ReconcileDecision(ReconcileAction.MOVE, TaskState.RUNNING)  # it ran, however shortly
    hanging = judge_hang(facts, observation)
    if cause := _find_end_cause(facts, observation, hanging):
        return ReconcileDecision(ReconcileAction.RECORD, cause=cause)
    if hanging and hanging.finding.level is not Level.INFO and observation.waiting is None:
        return ReconcileDecision(ReconcileAction.WAIT, cause=Cause(hanging.finding.code, hanging.finding.params))
    if facts.state is TaskState.STARTING:
        if observation.phase is Phase.RUNNING:
            return ReconcileDecision(ReconcileAction.MOVE, TaskState.RUNNING)
        if observation.phase in (Phase.ABSENT, Phase.STARTING):
            return ReconcileDecision(ReconcileAction.SUBMIT, cause=observation.waiting or Cause(""))
    return ReconcileDecision(
        ReconcileAction.WAIT, cause=observation.waiting or Cause(""), steady=_is_steady(facts, observation)
    )


def _needs_complete_facts(facts: TaskFacts, observation: Observation) -> bool:
    """Return True if the decision depends on what is known only of complete facts."""
    return facts.outcome is not None or facts.may_have_end_cause or any(rank.stalled for rank in observation.ranks)


def _is_steady(facts: TaskFacts, observation: Observation) -> bool:
    if (
        facts.state is not TaskState.RUNNING
        or observation.phase is not Phase.RUNNING
        or observation.waiting
        or facts.ends_soon
    ):
        return False
    return all(rank.state == "running" and rank.still_since is None and not rank.stalled for rank in observation.ranks)


def _decide_without_attempt(facts: TaskFacts, onward: ReconcileAction, timeout: TaskReason) -> ReconcileDecision:
    """Return the decision for a task that has no attempt: end it if stopped or overdue, otherwise do `onward`."""
    if facts.stop_requested:
        return ReconcileDecision(ReconcileAction.END, TaskState.STOPPED, Cause(TaskReason.STOPPED_BY_USER))
    if facts.overdue:
        return ReconcileDecision(ReconcileAction.END, TaskState.FAILED, Cause(timeout))
    return ReconcileDecision(onward)


def judge_hang(facts: TaskFacts, observation: Observation) -> hangs.HangVerdict | None:
    """Return the hang verdict for a running attempt; None if it does not hang or is not running."""
    if facts.state is not TaskState.RUNNING or observation.phase is not Phase.RUNNING or facts.outcome is not None:
        return None
    return hangs.detect_hang(observation.ranks, facts.site or hangs.GangLayout(), facts.moment)


def _find_end_cause(facts: TaskFacts, observation: Observation, hanging: hangs.HangVerdict | None) -> Cause | None:
    """Return why the attempt is over; None if it goes on. A success counts even when a stop was requested: the request
    came too late."""
    if observation.phase is Phase.SUCCEEDED:
        return Cause(TaskReason.COMPLETED)
    if facts.stop_requested:
        return Cause(TaskReason.STOPPED_BY_USER)
    if facts.leave and facts.state is not TaskState.STOPPING:
        return facts.leave
    if facts.state is TaskState.RUNNING and facts.end_cause and observation.phase is not Phase.UNKNOWN:
        return facts.end_cause
    if observation.phase is Phase.FAILED:
        return observation.cause or Cause(TaskReason.ATTEMPT_LOST)
    if observation.phase is Phase.ABSENT and facts.state is TaskState.RUNNING:
        return Cause(TaskReason.ATTEMPT_LOST)
    if facts.state is TaskState.RUNNING and observation.waiting and observation.waiting.halts:
        return observation.waiting
    if facts.state is TaskState.RUNNING and facts.resize_requested:
        return Cause(TaskReason.RESIZING)
    if hanging and hanging.finding.code == hangs.LEFT:
        return _build_never_ended_cause(
            [rank for rank in observation.ranks if rank.rank in hanging.ranks], facts.moment
        )
    both_run = facts.state is TaskState.RUNNING and observation.phase is Phase.RUNNING
    if both_run and (left := list_hanging_ranks(observation.ranks, facts.moment)):
        return _build_never_ended_cause(left, facts.moment)
    if hanging and hanging.certain and facts.on_hang != "report":
        return Cause(hanging.finding.code, {**hanging.finding.params, "then": facts.on_hang})
    if not facts.overdue:
        return None
    if facts.state is not TaskState.STARTING:
        return Cause(TaskReason.RUN_TIMEOUT)
    if observation.waiting is None or observation.phase is Phase.UNKNOWN:
        return Cause(TaskReason.START_TIMEOUT)
    return None if observation.waiting.patient else observation.waiting


def _build_never_ended_cause(hanging: Sequence[RankStatus], moment: float) -> Cause:
    """Return the cause for ranks that stay alive after their work. What rank 0 has completed is completed, whichever
    other rank hangs in the teardown; if rank 0 itself hangs, nothing confirms that the work is done. The caller that
    stores the cause adds the nodes' names."""
    well = all(rank.rank for rank in hanging)
    nodes = sorted({rank.node_rank for rank in hanging})
    since = max(rank.still_since or (rank.stalled or {}).get("since") or moment for rank in hanging)
    params = {"ranks": [rank.rank for rank in hanging], "node": nodes, "seconds": int(moment - since)}
    return Cause(TaskReason.COMPLETED if well else TaskReason.NEVER_ENDED, params)


def _decide_ended_attempt(facts: TaskFacts, outcome: Cause, observation: Observation) -> ReconcileDecision:
    """Return the decision for an attempt whose outcome is known: cancel what is left of it, then restart or end."""
    completed = outcome.code == TaskReason.COMPLETED
    if facts.stop_requested and facts.state is not TaskState.STOPPING and not completed:
        return ReconcileDecision(ReconcileAction.MOVE, TaskState.STOPPING)
    if outcome.code in RANK_CODES and observation.cause and observation.cause.underlying:
        return ReconcileDecision(ReconcileAction.RECORD, cause=observation.cause)
    if observation.left is not False:
        late = Cause(TaskReason.STOP_UNCONFIRMED, {"number": facts.attempt})
        return ReconcileDecision(ReconcileAction.CANCEL, cause=late if facts.overdue else Cause(""))
    if completed:
        return ReconcileDecision(ReconcileAction.CLOSE, TaskState.SUCCEEDED)
    if facts.state is TaskState.STOPPING:
        return ReconcileDecision(ReconcileAction.CLOSE, TaskState.STOPPED)
    if outcome.retry and facts.attempts_left > 0:
        return ReconcileDecision(ReconcileAction.CLOSE, TaskState.QUEUED)
    return ReconcileDecision(ReconcileAction.CLOSE, TaskState.FAILED)
