"""The closed list of actions that a finding may propose. Every `Action` is built here.

    actions.build_action(ActionCode.RAISE_LIMIT, field="hangSeconds")

Each has texts `ACTION_<CODE>`: the message is a button's label, the hint says what follows. Optional parameters change
the texts (`when`) and tell the console and the command line what to do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fermi.diagnosis import Action

TEXT_PREFIX = "ACTION_"


class ActionCode(StrEnum):
    # what the platform does itself, at the press of a button
    RESTART_FROM_CHECKPOINT = "RESTART_FROM_CHECKPOINT"
    WITHOUT_NODE = "WITHOUT_NODE"
    USE_SPARE = "USE_SPARE"
    CORDON = "CORDON"
    PREFLIGHT = "PREFLIGHT"
    STOP = "STOP"
    RESUME = "RESUME"
    # the same request again, with something changed in it
    RAISE_LIMIT = "RAISE_LIMIT"
    LOWER_BATCH = "LOWER_BATCH"
    CHANGE_FIELD = "CHANGE_FIELD"
    CHOOSE_OTHERS = "CHOOSE_OTHERS"
    # where to look
    SEE_LOG = "SEE_LOG"
    SEE_TASK = "SEE_TASK"
    # what people do elsewhere
    EDIT_SCRIPT = "EDIT_SCRIPT"
    INSTALL = "INSTALL"
    CONTINUE_PROCESS = "CONTINUE_PROCESS"
    FREE_DISK = "FREE_DISK"
    ADD_SECRET = "ADD_SECRET"
    ASK_OPERATOR = "ASK_OPERATOR"
    WAIT = "WAIT"


@dataclass(frozen=True, slots=True)
class ActionParams:
    """The names of an action's required (`needs`) and optional (`may`) parameters."""

    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


NODE_PARAMS = ActionParams(needs=("nodeRank", "node"))

ACTIONS: Mapping[str, ActionParams] = {
    # of a task that runs: its next attempt; of one that has ended: a retry. `step`: of the newest checkpoint, filled in
    # when it is shown
    ActionCode.RESTART_FROM_CHECKPOINT: ActionParams(may=("step",)),
    ActionCode.WITHOUT_NODE: NODE_PARAMS,
    ActionCode.USE_SPARE: NODE_PARAMS,
    ActionCode.CORDON: NODE_PARAMS,
    ActionCode.PREFLIGHT: ActionParams(),
    ActionCode.STOP: ActionParams(),
    ActionCode.RESUME: ActionParams(),
    ActionCode.RAISE_LIMIT: ActionParams(
        needs=("field",), may=("to",)
    ),  # `field`: of the request, as the API spells it
    ActionCode.LOWER_BATCH: ActionParams(),
    ActionCode.CHANGE_FIELD: ActionParams(needs=("field",), may=("to",)),
    ActionCode.CHOOSE_OTHERS: ActionParams(),
    ActionCode.SEE_LOG: ActionParams(needs=("rank",)),
    ActionCode.SEE_TASK: ActionParams(needs=("task",)),
    ActionCode.EDIT_SCRIPT: ActionParams(may=("at",)),  # `at`: as in `train.py:88 in forward`
    ActionCode.INSTALL: ActionParams(needs=("what",), may=("node",)),
    ActionCode.CONTINUE_PROCESS: ActionParams(needs=("pid",), may=("node",)),
    ActionCode.FREE_DISK: ActionParams(needs=("path",), may=("node",)),
    ActionCode.ADD_SECRET: ActionParams(needs=("secret",)),
    ActionCode.ASK_OPERATOR: ActionParams(),
    ActionCode.WAIT: ActionParams(),
}


_ORDER = [
    ActionCode.INSTALL,
    ActionCode.ADD_SECRET,
    ActionCode.FREE_DISK,
    ActionCode.CONTINUE_PROCESS,
    ActionCode.LOWER_BATCH,
    ActionCode.EDIT_SCRIPT,
    ActionCode.SEE_LOG,
    ActionCode.RESUME,
    ActionCode.RAISE_LIMIT,
    ActionCode.CHANGE_FIELD,
    ActionCode.RESTART_FROM_CHECKPOINT,
    ActionCode.USE_SPARE,
    ActionCode.WITHOUT_NODE,
    ActionCode.SEE_TASK,
    ActionCode.CHOOSE_OTHERS,
    ActionCode.PREFLIGHT,
    ActionCode.WAIT,
    ActionCode.ASK_OPERATOR,
    ActionCode.CORDON,
    ActionCode.STOP,
]
"""What removes the cause comes first; then what continues, what waits, and what costs other users something."""
CRASH_LOOP_FIELD = "onCrashLoop"
"""The field that has the platform retry what has just failed twice: a last resort."""


def sort_actions(actions: Iterable[Action]) -> list[Action]:
    """Return the actions, the best first; those of one kind keep their order."""
    return sorted(
        actions, key=lambda one: (one.params.get("field") == CRASH_LOOP_FIELD, _ORDER.index(ActionCode(one.code)))
    )


def build_action(code: ActionCode, **params: Any) -> Action:
    """Return the action. Parameters that are None or empty count as unknown. Raises ValueError for a parameter that the
    action does not have, or that it lacks."""
    named = {name: value for name, value in params.items() if value not in (None, "")}
    takes = ACTIONS[code]
    if (lacks := set(takes.needs) - named.keys()) or (odd := named.keys() - {*takes.needs, *takes.may}):
        raise ValueError(f"{code} {'needs' if lacks else 'does not take'} {', '.join(sorted(lacks or odd))}")
    return Action(code, named)
