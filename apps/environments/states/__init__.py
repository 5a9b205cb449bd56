"""States of a managed environment, and the only transitions between them.

    creating ─▶ starting ─▶ running ─▶ stopping ─▶ stopped ─▶ deleted ─▶ (gone)
        │        ▲   └──────────────────▲   │        │ ▲        ▲
        │        └──────────────────────────┼────────┘ │        │
        └──▶ stopped, failed, deleted       └─▶ failed ─┴────────┘

A run whose processes its engine replaces is starting again. A run that ends for any reason passes through stopping,
until the engine confirms that nothing of it is left. A stopped or failed one keeps its disk. In deleted the disk is
being removed; the row goes when the engine confirms that, too.
"""

from enum import StrEnum


class EnvironmentState(StrEnum):
    CREATING = "creating"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    DELETED = "deleted"


class DesiredState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


TRANSITIONS: dict[EnvironmentState, frozenset[EnvironmentState]] = {
    EnvironmentState.CREATING: frozenset(
        {EnvironmentState.STARTING, EnvironmentState.STOPPED, EnvironmentState.FAILED, EnvironmentState.DELETED}
    ),
    EnvironmentState.STARTING: frozenset({EnvironmentState.RUNNING, EnvironmentState.STOPPING}),
    EnvironmentState.RUNNING: frozenset({EnvironmentState.STARTING, EnvironmentState.STOPPING}),
    EnvironmentState.STOPPING: frozenset({EnvironmentState.STOPPED, EnvironmentState.FAILED}),
    EnvironmentState.STOPPED: frozenset({EnvironmentState.STARTING, EnvironmentState.FAILED, EnvironmentState.DELETED}),
    EnvironmentState.FAILED: frozenset({EnvironmentState.STARTING, EnvironmentState.DELETED}),
    EnvironmentState.DELETED: frozenset(),
}

STATES_WITH_RUN = frozenset({EnvironmentState.STARTING, EnvironmentState.RUNNING, EnvironmentState.STOPPING})
"""States in which a run is alive, so that the engine has to be observed."""
STATES_AT_REST = frozenset({EnvironmentState.STOPPED, EnvironmentState.FAILED})


class EnvironmentAction(StrEnum):
    OPEN = "open"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    KEEP = "keep"
    RESIZE = "resize"
    CLONE = "clone"
    DELETE = "delete"


REFUSED_WHILE_HELD = {
    EnvironmentAction.STOP,
    EnvironmentAction.RESTART,
    EnvironmentAction.RESIZE,
    EnvironmentAction.DELETE,
}


def list_allowed_actions(
    state: EnvironmentState,
    desired: DesiredState,
    *,
    may_change: bool = True,
    stops_when_idle: bool = False,
    is_held: bool = False,
) -> list[EnvironmentAction]:
    """Return what the user may do now; nothing unless `may_change` (member of its project). `stops_when_idle`: it stops
    by itself when nobody uses it; `is_held`: a task runs in it."""
    if not may_change:
        return []
    return [
        each
        for each in _list_possible_actions(state, desired, stops_when_idle)
        if not (is_held and each in REFUSED_WHILE_HELD)
    ]


def _list_possible_actions(
    state: EnvironmentState, desired: DesiredState, stops_when_idle: bool
) -> list[EnvironmentAction]:
    if state is EnvironmentState.DELETED or desired is DesiredState.DELETED:
        return [EnvironmentAction.CLONE]
    always = [EnvironmentAction.RESIZE, EnvironmentAction.CLONE, EnvironmentAction.DELETE]
    if desired is DesiredState.STOPPED:
        return [EnvironmentAction.START, *always]
    opens = [EnvironmentAction.OPEN, EnvironmentAction.RESTART] if state is EnvironmentState.RUNNING else []
    keeps = [EnvironmentAction.KEEP] if stops_when_idle and state is EnvironmentState.RUNNING else []
    return [*opens, EnvironmentAction.STOP, *keeps, *always]
