"""What a pass does next with an environment: a pure function of the database and the engine."""

from dataclasses import dataclass, field
from enum import StrEnum

from apps.environments.states import AT_REST, State, Wanted
from apps.environments.states.idling import Idle
from apps.environments.states.reasons import CAUSES, Reason
from fermi.engines.environments import HostedPhase, HostedSeen
from fermi.jobs.spec import Cause


class Act(StrEnum):
    WAIT = "wait"  # look again later
    REST = "rest"  # until a user asks for a change
    BEGIN = "begin"  # another run: its GPUs, what its engine is sent
    START = "start"  # have the engine begin the run
    MOVE = "move"
    WARN = "warn"  # tell its owner that it is about to stop
    RECORD = "record"  # the run is over, and why; what is left of it goes
    STOP = "stop"  # have the engine end what is left
    CLOSE = "close"  # nothing is left of the run
    REMOVE = "remove"  # have the engine remove the disk; nothing left: the row goes


@dataclass(frozen=True, slots=True)
class Facts:
    """State in the database. `asked`: why it is desired. `sent`: the engine was told of the run. `outcome`: how the run
    ended, if known. `restart`: a user asked for another run. `retries`: how many more retries there may be. `rested`:
    the back-off is over. `overdue`: the state's deadline has passed. `on_demand`: as the engine has it."""

    state: State
    wanted: Wanted = Wanted.RUNNING
    asked: Cause = field(default_factory=lambda: CAUSES[Reason.STOPPED])
    sent: bool = False
    outcome: Cause | None = None
    restart: bool = False
    retries: int = 0
    rested: bool = True
    overdue: bool = False
    on_demand: bool = False
    idle: Idle = Idle.USED


@dataclass(frozen=True, slots=True)
class Decision:
    """The next act, and the state and cause that it leads to."""

    act: Act
    to: State | None = None
    cause: Cause = field(default_factory=lambda: Cause(""))


def decide(facts: Facts, seen: HostedSeen | None) -> Decision:
    """Return the next act. `status` is None in the states that have no run, and only there. Causes carry what is
    declared of them."""
    if facts.state is State.DELETED:
        late = Cause(Reason.DELETE_UNCONFIRMED) if facts.overdue else Cause("")
        return Decision(Act.REMOVE, cause=late)
    if facts.state is State.CREATING or facts.state in AT_REST:
        return _without_run(facts)
    assert seen is not None
    if facts.outcome is not None:
        return _ending(facts, facts.outcome, seen)
    if cause := _end_of_run(facts, seen):
        return Decision(Act.RECORD, State.STOPPING, cause)
    if seen.phase is HostedPhase.ABSENT and not facts.sent:
        return Decision(Act.START)
    if facts.state is State.STARTING:
        return _starting(facts, seen)
    if seen.phase is HostedPhase.STARTING and seen.waiting:
        return Decision(Act.MOVE, State.STARTING, seen.waiting)
    if facts.idle is Idle.WARN:
        return Decision(Act.WARN)
    return Decision(Act.WAIT, cause=seen.waiting or Cause(""))


def _without_run(facts: Facts) -> Decision:
    if facts.wanted is Wanted.DELETED:
        return Decision(Act.MOVE, State.DELETED, facts.asked)
    if facts.wanted is Wanted.STOPPED:
        return Decision(Act.MOVE, State.STOPPED, facts.asked) if facts.state is State.CREATING else Decision(Act.REST)
    if facts.state is State.CREATING and facts.overdue:
        return Decision(Act.MOVE, State.FAILED, CAUSES[Reason.CREATE_TIMEOUT])
    return Decision(Act.BEGIN, State.STARTING) if facts.rested else Decision(Act.WAIT, cause=Cause(Reason.STARTS_AGAIN))


def _starting(facts: Facts, seen: HostedSeen) -> Decision:
    up = seen.phase is HostedPhase.RUNNING or (facts.on_demand and seen.phase is HostedPhase.ABSENT)
    if up:
        return Decision(Act.MOVE, State.RUNNING)
    if seen.phase is HostedPhase.ABSENT:  # sent, but absent: the engine may have lost it
        return Decision(Act.START, cause=seen.waiting or Cause(""))
    return Decision(Act.WAIT, cause=seen.waiting or Cause(""))


def _end_of_run(facts: Facts, seen: HostedSeen) -> Cause | None:
    """Return why the run has ended, or None."""
    if facts.wanted is not Wanted.RUNNING:
        return facts.asked
    if facts.restart:
        return facts.asked
    if seen.phase is HostedPhase.ENDED:
        return seen.cause or CAUSES[Reason.ENDED]
    if facts.state is State.RUNNING:
        if seen.phase is HostedPhase.ABSENT and not facts.on_demand:
            return CAUSES[Reason.LOST]
        return CAUSES[Reason.IDLE] if facts.idle is Idle.STOP else None
    if not facts.overdue or seen.phase in (HostedPhase.RUNNING, HostedPhase.UNKNOWN):
        return None
    if seen.waiting is None:
        return CAUSES[Reason.START_TIMEOUT]
    return None if seen.waiting.patient else seen.waiting


def _ending(facts: Facts, outcome: Cause, seen: HostedSeen) -> Decision:
    if seen.left is not False:
        late = Cause(Reason.STOP_UNCONFIRMED) if facts.overdue else Cause("")
        return Decision(Act.STOP, cause=late)
    if outcome.asked:
        return Decision(Act.CLOSE, State.STOPPED, outcome)
    if facts.wanted is Wanted.RUNNING and outcome.retry and facts.retries > 0:
        return Decision(Act.CLOSE, State.STOPPED, outcome)
    return Decision(Act.CLOSE, State.FAILED, outcome)
