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


class State(StrEnum):
    CREATING = "creating"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    DELETED = "deleted"


class Wanted(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


ARROWS: dict[State, frozenset[State]] = {
    State.CREATING: frozenset({State.STARTING, State.STOPPED, State.FAILED, State.DELETED}),
    State.STARTING: frozenset({State.RUNNING, State.STOPPING}),
    State.RUNNING: frozenset({State.STARTING, State.STOPPING}),
    State.STOPPING: frozenset({State.STOPPED, State.FAILED}),
    State.STOPPED: frozenset({State.STARTING, State.FAILED, State.DELETED}),
    State.FAILED: frozenset({State.STARTING, State.DELETED}),
    State.DELETED: frozenset(),
}

WITH_RUN = frozenset({State.STARTING, State.RUNNING, State.STOPPING})
"""States in which a run is alive, so that the engine has to be observed."""
AT_REST = frozenset({State.STOPPED, State.FAILED})


class Action(StrEnum):
    OPEN = "open"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    KEEP = "keep"
    RESIZE = "resize"
    CLONE = "clone"
    DELETE = "delete"


NOT_WHILE_HELD = {Action.STOP, Action.RESTART, Action.RESIZE, Action.DELETE}


def allowed_actions(
    state: State, wanted: Wanted, *, changes: bool = True, idles: bool = False, held: bool = False
) -> list[Action]:
    """Return what the user may do now; nothing unless `may_change` (member of its project). `stops_when_idle`: it stops
    by itself when nobody uses it; `is_held`: a task runs in it."""
    if not changes:
        return []
    return [each for each in _possible(state, wanted, idles) if not (held and each in NOT_WHILE_HELD)]


def _possible(state: State, wanted: Wanted, idles: bool) -> list[Action]:
    if state is State.DELETED or wanted is Wanted.DELETED:
        return [Action.CLONE]
    always = [Action.RESIZE, Action.CLONE, Action.DELETE]
    if wanted is Wanted.STOPPED:
        return [Action.START, *always]
    opens = [Action.OPEN, Action.RESTART] if state is State.RUNNING else []
    keeps = [Action.KEEP] if idles and state is State.RUNNING else []
    return [*opens, Action.STOP, *keeps, *always]
