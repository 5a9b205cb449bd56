"""What a pass does next with an environment: a pure function of the database and the engine."""

from dataclasses import dataclass, field
from enum import StrEnum

from apps.environments.states import STATES_AT_REST, DesiredState, EnvironmentState
from apps.environments.states.idleness import IdleVerdict
from apps.environments.states.reasons import CAUSES, EnvironmentReason
from fermi.engines.environments import EnvironmentPhase, EnvironmentStatus
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
class EnvironmentFacts:
    """State in the database. `desired_cause`: why it is desired. `sent`: the engine was told of the run. `outcome`: how
    the run ended, if known. `restart`: a user asked for another run. `retries`: how many more retries there may be.
    `rested`: the back-off is over. `overdue`: the state's deadline has passed. `on_demand`: as the engine has it."""

    state: EnvironmentState
    desired_state: DesiredState = DesiredState.RUNNING
    desired_cause: Cause = field(default_factory=lambda: CAUSES[EnvironmentReason.STOPPED])
    sent: bool = False
    outcome: Cause | None = None
    restart: bool = False
    retries: int = 0
    rested: bool = True
    overdue: bool = False
    on_demand: bool = False
    idle: IdleVerdict = IdleVerdict.USED


@dataclass(frozen=True, slots=True)
class EnvironmentDecision:
    """The next act, and the state and cause that it leads to."""

    act: Act
    to: EnvironmentState | None = None
    cause: Cause = field(default_factory=lambda: Cause(""))


def decide_act(facts: EnvironmentFacts, status: EnvironmentStatus | None) -> EnvironmentDecision:
    """Return the next act. `status` is None in the states that have no run, and only there. Causes carry what is
    declared of them."""
    if facts.state is EnvironmentState.DELETED:
        late = Cause(EnvironmentReason.DELETE_UNCONFIRMED) if facts.overdue else Cause("")
        return EnvironmentDecision(Act.REMOVE, cause=late)
    if facts.state is EnvironmentState.CREATING or facts.state in STATES_AT_REST:
        return _decide_without_run(facts)
    assert status is not None
    if facts.outcome is not None:
        return _decide_ending(facts, facts.outcome, status)
    if cause := _find_end_cause(facts, status):
        return EnvironmentDecision(Act.RECORD, EnvironmentState.STOPPING, cause)
    if status.phase is EnvironmentPhase.ABSENT and not facts.sent:
        return EnvironmentDecision(Act.START)
    if facts.state is EnvironmentState.STARTING:
        return _decide_starting(facts, status)
    if status.phase is EnvironmentPhase.STARTING and status.waiting:
        return EnvironmentDecision(Act.MOVE, EnvironmentState.STARTING, status.waiting)
    if facts.idle is IdleVerdict.WARN:
        return EnvironmentDecision(Act.WARN)
    return EnvironmentDecision(Act.WAIT, cause=status.waiting or Cause(""))


def _decide_without_run(facts: EnvironmentFacts) -> EnvironmentDecision:
    if facts.desired_state is DesiredState.DELETED:
        return EnvironmentDecision(Act.MOVE, EnvironmentState.DELETED, facts.desired_cause)
    if facts.desired_state is DesiredState.STOPPED:
        return (
            EnvironmentDecision(Act.MOVE, EnvironmentState.STOPPED, facts.desired_cause)
            if facts.state is EnvironmentState.CREATING
            else EnvironmentDecision(Act.REST)
        )
    if facts.state is EnvironmentState.CREATING and facts.overdue:
        return EnvironmentDecision(Act.MOVE, EnvironmentState.FAILED, CAUSES[EnvironmentReason.CREATE_TIMEOUT])
    return (
        EnvironmentDecision(Act.BEGIN, EnvironmentState.STARTING)
        if facts.rested
        else EnvironmentDecision(Act.WAIT, cause=Cause(EnvironmentReason.STARTS_AGAIN))
    )


def _decide_starting(facts: EnvironmentFacts, status: EnvironmentStatus) -> EnvironmentDecision:
    up = status.phase is EnvironmentPhase.RUNNING or (facts.on_demand and status.phase is EnvironmentPhase.ABSENT)
    if up:
        return EnvironmentDecision(Act.MOVE, EnvironmentState.RUNNING)
    if status.phase is EnvironmentPhase.ABSENT:  # sent, but absent: the engine may have lost it
        return EnvironmentDecision(Act.START, cause=status.waiting or Cause(""))
    return EnvironmentDecision(Act.WAIT, cause=status.waiting or Cause(""))


def _find_end_cause(facts: EnvironmentFacts, status: EnvironmentStatus) -> Cause | None:
    """Return why the run has ended, or None."""
    if facts.desired_state is not DesiredState.RUNNING:
        return facts.desired_cause
    if facts.restart:
        return facts.desired_cause
    if status.phase is EnvironmentPhase.ENDED:
        return status.cause or CAUSES[EnvironmentReason.ENDED]
    if facts.state is EnvironmentState.RUNNING:
        if status.phase is EnvironmentPhase.ABSENT and not facts.on_demand:
            return CAUSES[EnvironmentReason.LOST]
        return CAUSES[EnvironmentReason.IDLE] if facts.idle is IdleVerdict.STOP else None
    if not facts.overdue or status.phase in (EnvironmentPhase.RUNNING, EnvironmentPhase.UNKNOWN):
        return None
    if status.waiting is None:
        return CAUSES[EnvironmentReason.START_TIMEOUT]
    return None if status.waiting.patient else status.waiting


def _decide_ending(facts: EnvironmentFacts, outcome: Cause, status: EnvironmentStatus) -> EnvironmentDecision:
    if status.left is not False:
        late = Cause(EnvironmentReason.STOP_UNCONFIRMED) if facts.overdue else Cause("")
        return EnvironmentDecision(Act.STOP, cause=late)
    if outcome.asked:
        return EnvironmentDecision(Act.CLOSE, EnvironmentState.STOPPED, outcome)
    if facts.desired_state is DesiredState.RUNNING and outcome.retry and facts.retries > 0:
        return EnvironmentDecision(Act.CLOSE, EnvironmentState.STOPPED, outcome)
    return EnvironmentDecision(Act.CLOSE, EnvironmentState.FAILED, outcome)
