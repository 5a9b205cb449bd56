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

LABEL = "ACTION_"


class Do(StrEnum):
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
class Takes:
    """The names of an action's required (`needs`) and optional (`may`) parameters."""

    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


OF_A_NODE = Takes(needs=("nodeRank", "node"))

ACTIONS: Mapping[str, Takes] = {
    # of a task that runs: its next attempt; of one that has ended: a retry. `step`: of the newest checkpoint, filled in
    # when it is shown
    Do.RESTART_FROM_CHECKPOINT: Takes(may=("step",)),
    Do.WITHOUT_NODE: OF_A_NODE,
    Do.USE_SPARE: OF_A_NODE,
    Do.CORDON: OF_A_NODE,
    Do.PREFLIGHT: Takes(),
    Do.STOP: Takes(),
    Do.RESUME: Takes(),
    Do.RAISE_LIMIT: Takes(needs=("field",), may=("to",)),  # `field`: of the request, as the API spells it
    Do.LOWER_BATCH: Takes(),
    Do.CHANGE_FIELD: Takes(needs=("field",), may=("to",)),
    Do.CHOOSE_OTHERS: Takes(),
    Do.SEE_LOG: Takes(needs=("rank",)),
    Do.SEE_TASK: Takes(needs=("task",)),
    Do.EDIT_SCRIPT: Takes(may=("at",)),  # `at`: as in `train.py:88 in forward`
    Do.INSTALL: Takes(needs=("what",), may=("node",)),
    Do.CONTINUE_PROCESS: Takes(needs=("pid",), may=("node",)),
    Do.FREE_DISK: Takes(needs=("path",), may=("node",)),
    Do.ADD_SECRET: Takes(needs=("secret",)),
    Do.ASK_OPERATOR: Takes(),
    Do.WAIT: Takes(),
}


_ORDER = [
    Do.INSTALL, Do.ADD_SECRET, Do.FREE_DISK, Do.CONTINUE_PROCESS, Do.LOWER_BATCH, Do.EDIT_SCRIPT, Do.SEE_LOG, Do.RESUME,
    Do.RAISE_LIMIT, Do.CHANGE_FIELD, Do.RESTART_FROM_CHECKPOINT, Do.USE_SPARE, Do.WITHOUT_NODE, Do.SEE_TASK,
    Do.CHOOSE_OTHERS, Do.PREFLIGHT, Do.WAIT, Do.ASK_OPERATOR, Do.CORDON, Do.STOP,
]  # fmt: skip
"""What removes the cause comes first; then what continues, what waits, and what costs other users something."""
ANYWAY = "onCrashLoop"
"""The field that has the platform retry what has just failed twice: a last resort."""


def in_order(found: Iterable[Action]) -> list[Action]:
    """Return the actions, the best first; those of one kind keep their order."""
    return sorted(found, key=lambda one: (one.params.get("field") == ANYWAY, _ORDER.index(Do(one.code))))


def take(code: Do, **params: Any) -> Action:
    """Return the action. Parameters that are None or empty count as unknown. Raises ValueError for a parameter that the
    action does not have, or that it lacks."""
    named = {name: value for name, value in params.items() if value not in (None, "")}
    takes = ACTIONS[code]
    if (lacks := set(takes.needs) - named.keys()) or (odd := named.keys() - {*takes.needs, *takes.may}):
        raise ValueError(f"{code} {'needs' if lacks else 'does not take'} {', '.join(sorted(lacks or odd))}")
    return Action(code, named)
