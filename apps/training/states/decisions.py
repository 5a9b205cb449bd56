"""Decides what to do with a task: a pure function of what is stored and what the engine reports. No clock, no database,
no engine calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from apps.training.states import State
from apps.training.states.reasons import Reason
from fermi.diagnosis import Level, hangs
from fermi.engines.failure_cause import never_ending
from fermi.jobs.causes import BY_RANKS
from fermi.jobs.spec import Cause, Observation, Phase, RankSeen


class Act(StrEnum):
    """What a reconciler pass can do with a task; `reconcile.actions` has one function for each."""

    WAIT = "wait"  # and store why, if the engine cannot be asked
    PREPARE = "prepare"  # initializing: check what it needs
    LEASE = "lease"  # queued: take all environments and start an attempt, or store who holds them
    SUBMIT = "submit"  # starting: submit what has not started (again), and store why it waits
    MOVE = "move"  # change the state while the attempt goes on
    RECORD = "record"  # store the attempt's outcome, once its end or its true reason is known
    CANCEL = "cancel"  # have the engine end what is left of the attempt
    CLOSE = "close"  # nothing of the attempt is left: restart or end
    END = "end"  # end a task without an attempt


@dataclass(frozen=True, slots=True)
class Facts:
    """What the database says of a task, as input of `decide_action`.

    `attempt`: number of the newest attempt; `outcome`: that attempt's outcome, once its end is known; `leave`: why the
    task has to give its environments back for now (paused or preempted); `found`: why the attempt has to end, according
    to its output; `overdue`: the deadline has passed; `moment`: now, in unix seconds; `site`: where the attempt runs,
    for hang detection; `on_hang`: what to do when it hangs for certain.
    """

    state: State
    stop_requested: bool = False
    overdue: bool = False
    outcome: Cause | None = None
    attempts_left: int = 0
    attempt: int = 0
    moment: float = 0.0
    resize_requested: bool = False
    leave: Cause | None = None
    found: Cause | None = None
    site: hangs.Site | None = None
    on_hang: str = "report"


@dataclass(frozen=True, slots=True)
class Decision:
    """The action to take, with the target state and the cause where the action needs them."""

    act: Act
    to: State | None = None
    cause: Cause = field(default_factory=lambda: Cause(""))


def decide(facts: Facts, seen: Observation | None) -> Decision:
    """Return what to do next with a task.

    `observation` is None in the states that have no attempt, and only in those. Returned causes carry what is declared
    of them.
    """
    if facts.state is State.INITIALIZING:
        return _without_attempt(facts, Act.PREPARE, Reason.INITIALIZE_TIMEOUT)
    if facts.state is State.QUEUED:
        return _without_attempt(facts, Act.LEASE, Reason.QUEUE_TIMEOUT)
    assert seen is not None
    if facts.outcome is not None:
        return _ending(facts, facts.outcome, seen)
    if facts.state is State.STARTING and seen.phase is Phase.SUCCEEDED:
        return Decision(Act.MOVE, State.RUNNING)  # it ran, however shortly
    hanging = hanging_now(facts, seen)
    if cause := _end_of_attempt(facts, seen, hanging):
        return Decision(Act.RECORD, cause=cause)
    if hanging and hanging.finding.level is not Level.INFO and seen.waiting is None:
        return Decision(Act.WAIT, cause=Cause(hanging.finding.code, hanging.finding.params))
    if facts.state is State.STARTING:
        if seen.phase is Phase.RUNNING:
            return Decision(Act.MOVE, State.RUNNING)
        if seen.phase in (Phase.ABSENT, Phase.STARTING):
            return Decision(Act.SUBMIT, cause=seen.waiting or Cause(""))
    return Decision(Act.WAIT, cause=seen.waiting or Cause(""))


def _without_attempt(facts: Facts, onward: Act, timeout: Reason) -> Decision:
    """Return the decision for a task that has no attempt: end it if stopped or overdue, otherwise do `onward`."""
    if facts.stop_requested:
        return Decision(Act.END, State.STOPPED, Cause(Reason.STOPPED_BY_USER))
    if facts.overdue:
        return Decision(Act.END, State.FAILED, Cause(timeout))
    return Decision(onward)


def hanging_now(facts: Facts, seen: Observation) -> hangs.Verdict | None:
    """Return the hang verdict for a running attempt; None if it does not hang or is not running."""
    if facts.state is not State.RUNNING or seen.phase is not Phase.RUNNING or facts.outcome is not None:
        return None
    return hangs.judge(seen.ranks, facts.site or hangs.Site(), facts.moment)


def _end_of_attempt(facts: Facts, seen: Observation, hanging: hangs.Verdict | None) -> Cause | None:
    """Return why the attempt is over; None if it goes on. A success counts even when a stop was requested: the request
    came too late."""
    if seen.phase is Phase.SUCCEEDED:
        return Cause(Reason.COMPLETED)
    if facts.stop_requested:
        return Cause(Reason.STOPPED_BY_USER)
    if facts.leave and facts.state is not State.STOPPING:
        return facts.leave
    if facts.state is State.RUNNING and facts.found and seen.phase is not Phase.UNKNOWN:
        return facts.found
    if seen.phase is Phase.FAILED:
        return seen.cause or Cause(Reason.ATTEMPT_LOST)
    if seen.phase is Phase.ABSENT and facts.state is State.RUNNING:
        return Cause(Reason.ATTEMPT_LOST)
    if facts.state is State.RUNNING and seen.waiting and seen.waiting.halts:
        return seen.waiting
    if facts.state is State.RUNNING and facts.resize_requested:
        return Cause(Reason.RESIZING)
    if hanging and hanging.finding.code == hangs.LEFT:
        return _never_ended([rank for rank in seen.ranks if rank.rank in hanging.ranks], facts.moment)
    both_run = facts.state is State.RUNNING and seen.phase is Phase.RUNNING
    if both_run and (left := never_ending(seen.ranks, facts.moment)):
        return _never_ended(left, facts.moment)
    if hanging and hanging.certain and facts.on_hang != "report":
        return Cause(hanging.finding.code, {**hanging.finding.params, "then": facts.on_hang})
    if not facts.overdue:
        return None
    if facts.state is not State.STARTING:
        return Cause(Reason.RUN_TIMEOUT)
    if seen.waiting is None or seen.phase is Phase.UNKNOWN:
        return Cause(Reason.START_TIMEOUT)
    return None if seen.waiting.patient else seen.waiting


def _never_ended(hanging: Sequence[RankSeen], moment: float) -> Cause:
    """Return the cause for ranks that stay alive after their work. What rank 0 has completed is completed, whichever
    other rank hangs in the teardown; if rank 0 itself hangs, nothing confirms that the work is done. The caller that
    stores the cause adds the nodes' names."""
    well = all(rank.rank for rank in hanging)
    nodes = sorted({rank.node_rank for rank in hanging})
    since = max(rank.still_since or (rank.stalled or {}).get("since") or moment for rank in hanging)
    params = {"ranks": [rank.rank for rank in hanging], "node": nodes, "seconds": int(moment - since)}
    return Cause(Reason.COMPLETED if well else Reason.NEVER_ENDED, params)


def _ending(facts: Facts, outcome: Cause, seen: Observation) -> Decision:
    """Return the decision for an attempt whose outcome is known: cancel what is left of it, then restart or end."""
    completed = outcome.code == Reason.COMPLETED
    if facts.stop_requested and facts.state is not State.STOPPING and not completed:
        return Decision(Act.MOVE, State.STOPPING)
    if outcome.code in BY_RANKS and seen.cause and seen.cause.underlying:
        return Decision(Act.RECORD, cause=seen.cause)
    if seen.left is not False:
        late = Cause(Reason.STOP_UNCONFIRMED, {"number": facts.attempt})
        return Decision(Act.CANCEL, cause=late if facts.overdue else Cause(""))
    if completed:
        return Decision(Act.CLOSE, State.SUCCEEDED)
    if facts.state is State.STOPPING:
        return Decision(Act.CLOSE, State.STOPPED)
    if outcome.retry and facts.attempts_left > 0:
        return Decision(Act.CLOSE, State.QUEUED)
    return Decision(Act.CLOSE, State.FAILED)
