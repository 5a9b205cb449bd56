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


class TaskKind(StrEnum):
    """What a task is for. All kinds share leases, attempts, deadlines and ends."""

    TRAINING = "training"
    PREFLIGHT = "preflight"
    DRILL = "drill"


class TaskState(StrEnum):
    """States of a task; see the drawing above."""

    INITIALIZING = "initializing"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.INITIALIZING: frozenset({TaskState.QUEUED, TaskState.FAILED, TaskState.STOPPED}),
    TaskState.QUEUED: frozenset({TaskState.STARTING, TaskState.FAILED, TaskState.STOPPED}),
    TaskState.STARTING: frozenset({TaskState.RUNNING, TaskState.QUEUED, TaskState.STOPPING, TaskState.FAILED}),
    TaskState.RUNNING: frozenset({TaskState.QUEUED, TaskState.STOPPING, TaskState.SUCCEEDED, TaskState.FAILED}),
    TaskState.STOPPING: frozenset({TaskState.STOPPED, TaskState.SUCCEEDED}),
    TaskState.SUCCEEDED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.STOPPED: frozenset(),
}

FINAL_STATES = frozenset(state for state, onward in TRANSITIONS.items() if not onward)
ACTIVE_STATES = frozenset(TaskState) - FINAL_STATES
STATES_WITH_ATTEMPT = frozenset({TaskState.STARTING, TaskState.RUNNING, TaskState.STOPPING})
"""States in which an attempt is alive: the engine has to be asked about it, and its environments are held."""

STATES_BY_STATUS: dict[str, tuple[TaskState, ...]] = {
    "queued": (TaskState.INITIALIZING, TaskState.QUEUED),
    "running": (TaskState.STARTING, TaskState.RUNNING, TaskState.STOPPING),
    "done": (TaskState.SUCCEEDED,),
    "failed": (TaskState.FAILED, TaskState.STOPPED),
}
"""Status of a pre-flight test or a drill, and the states of the task that runs it."""


def get_run_status(state: str) -> str:
    """Return the status of a pre-flight test or a drill whose run is in `state`."""
    return next(status for status, states in STATES_BY_STATUS.items() if state in states)


class TaskAction(StrEnum):
    """Actions that users can take on a task."""

    STOP = "stop"
    RETRY = "retry"
    CLONE = "clone"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"


def allowed_actions(state: TaskState, *, changes: bool = True, paused: bool | None = None) -> list[TaskAction]:
    """Return the actions that are allowed on a task in `state`, in the order in which they are offered.

    `changes`: whether the user may change things in the task's project; without it the list is empty. `retry` is
    offered for ends other than success. `paused`: whether the task was asked to pause; None: tasks of its kind cannot
    be paused.
    """
    if not changes:
        return []
    if state not in FINAL_STATES:
        steer = [] if paused is None else [TaskAction.RESUME if paused else TaskAction.PAUSE]
        return [TaskAction.CLONE] if state is TaskState.STOPPING else [TaskAction.STOP, *steer, TaskAction.CLONE]
    return ([] if state is TaskState.SUCCEEDED else [TaskAction.RETRY]) + [TaskAction.CLONE, TaskAction.DELETE]
