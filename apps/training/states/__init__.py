"""States of a training task and the transitions between them.

    initializing ─▶ queued ─▶ starting ─▶ running ─▶ succeeded
          │           │ ▲        │           │
          │           │ └─ next attempt ─────┤
          ▼           ▼          ▼           ▼
       failed,     failed,    stopping ─▶ stopped        failed
       stopped     stopped

Everything that depends on states (allowed actions, what is final, what the page offers, the drawing in the docs)
derives from the two tables in this module.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What a task is for. All kinds share leases, attempts, deadlines and ends."""

    TRAINING = "training"
    PREFLIGHT = "preflight"
    DRILL = "drill"


class State(StrEnum):
    """States of a task; see the drawing above."""

    INITIALIZING = "initializing"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


ARROWS: dict[State, frozenset[State]] = {
    State.INITIALIZING: frozenset({State.QUEUED, State.FAILED, State.STOPPED}),
    State.QUEUED: frozenset({State.STARTING, State.FAILED, State.STOPPED}),
    State.STARTING: frozenset({State.RUNNING, State.QUEUED, State.STOPPING, State.FAILED}),
    State.RUNNING: frozenset({State.QUEUED, State.STOPPING, State.SUCCEEDED, State.FAILED}),
    State.STOPPING: frozenset({State.STOPPED, State.SUCCEEDED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.STOPPED: frozenset(),
}

FINAL = frozenset(state for state, onward in ARROWS.items() if not onward)
ACTIVE = frozenset(State) - FINAL
WITH_ATTEMPT = frozenset({State.STARTING, State.RUNNING, State.STOPPING})
"""States in which an attempt is alive: the engine has to be asked about it, and its environments are held."""


class Action(StrEnum):
    """Actions that users can take on a task."""

    STOP = "stop"
    RETRY = "retry"
    CLONE = "clone"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"


def allowed_actions(state: State, *, changes: bool = True, paused: bool | None = None) -> list[Action]:
    """Return the actions that are allowed on a task in `state`, in the order in which they are offered.

    `changes`: whether the user may change things in the task's project; without it the list is empty. `retry` is
    offered for ends other than success. `paused`: whether the task was asked to pause; None: tasks of its kind cannot
    be paused.
    """
    if not changes:
        return []
    if state not in FINAL:
        steer = [] if paused is None else [Action.RESUME if paused else Action.PAUSE]
        return [Action.CLONE] if state is State.STOPPING else [Action.STOP, *steer, Action.CLONE]
    return ([] if state is State.SUCCEEDED else [Action.RETRY]) + [Action.CLONE, Action.DELETE]
