"""Lists the actions for a cause, of whichever engine: from what is declared of it, and from what fills its text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fermi.diagnosis import Action
from fermi.diagnosis.actions import CRASH_LOOP_FIELD, ActionCode, build_action
from fermi.jobs.causes import NO_SPACE_CODES, RANK_CODES
from fermi.jobs.spec import Cause

Params = Mapping[str, Any]
Advice = Callable[[Params], list[Action]]


def _advise(*codes: ActionCode) -> Advice:
    return lambda _: [build_action(code) for code in codes]


def _advise_change(field: str, *more: ActionCode) -> Advice:
    return lambda _: [build_action(ActionCode.CHANGE_FIELD, field=field), *(build_action(code) for code in more)]


def _advise_disk(params: Params) -> list[Action]:
    return (
        [build_action(ActionCode.FREE_DISK, path=params["path"], node=params.get("node"))] if params.get("path") else []
    )


def _advise_holders(params: Params) -> list[Action]:
    tasks = dict.fromkeys(str(holder["task"]) for holder in params.get("holders", ()) if holder.get("task"))
    return [
        *(build_action(ActionCode.SEE_TASK, task=task) for task in tasks),
        build_action(ActionCode.CHOOSE_OTHERS),
        build_action(ActionCode.WAIT),
    ]


def _advise_secret(params: Params) -> list[Action]:
    return [build_action(ActionCode.ADD_SECRET, secret=params["secret"])] if params.get("secret") else []


ADVICE_BY_CODE: Mapping[str, Advice] = {
    # waiting
    "DATASET_PREPARING": _advise(ActionCode.WAIT),
    "WAITING_FOR_ENVIRONMENTS": _advise_holders,
    "ENVIRONMENT_UNAVAILABLE": _advise(ActionCode.CHOOSE_OTHERS, ActionCode.ASK_OPERATOR),
    "PORTS_TAKEN": _advise_change("distributedConfig.masterPort", ActionCode.ASK_OPERATOR),
    "RESTARTING": _advise(ActionCode.WAIT),
    **dict.fromkeys(("WAITING_FOR_TURN", "MAKING_ROOM", "GAVE_WAY"), _advise(ActionCode.WAIT)),
    **dict.fromkeys(
        ("WAITING_FOR_CAPACITY", "WAITING_FOR_RESERVATION", "WAITING_FOR_MAINTENANCE", "WAITING_FOR_MIN_RUN"),
        _advise(ActionCode.CHOOSE_OTHERS, ActionCode.WAIT),
    ),
    "WAITING_FOR_FIT": _advise(ActionCode.CHOOSE_OTHERS),
    **dict.fromkeys(
        ("LIMIT_GPUS", "LIMIT_TASKS", "LIMIT_USER_GPUS", "LIMIT_USER_TASKS"),
        _advise(ActionCode.WAIT, ActionCode.ASK_OPERATOR),
    ),
    **dict.fromkeys(
        ("LIMIT_GPU_HOURS", "LIMIT_USER_GPU_HOURS", "BUDGET_SPENT"), _advise(ActionCode.ASK_OPERATOR, ActionCode.WAIT)
    ),
    "BUDGET_PREEMPTIBLE_ONLY": _advise_change("preemptible", ActionCode.ASK_OPERATOR),
    "PAUSED": _advise(ActionCode.RESUME),
    "SECRET_MISSING": _advise_secret,
    "SECRET_UNREADABLE": _advise(ActionCode.ASK_OPERATOR),
    "PREFLIGHT_RUNNING": _advise(ActionCode.WAIT),
    "PROCESS_SILENT": _advise(ActionCode.WAIT, ActionCode.ASK_OPERATOR),
    "ATTEMPT_UNREADABLE": _advise(ActionCode.ASK_OPERATOR),
    "STOP_UNCONFIRMED": _advise(ActionCode.WAIT, ActionCode.ASK_OPERATOR),
    # ends without an attempt
    "DATASET_FAILED": _advise_change("datasetVersionId"),
    "INITIALIZE_TIMEOUT": _advise(ActionCode.ASK_OPERATOR),
    "QUEUE_TIMEOUT": _advise(ActionCode.CHOOSE_OTHERS),
    "PREFLIGHT_FAILED": _advise(ActionCode.CHOOSE_OTHERS, ActionCode.ASK_OPERATOR),
    # ends of an attempt
    "CRASH_LOOP": lambda params: [
        build_action(ActionCode.EDIT_SCRIPT, at=params.get("at")),
        build_action(ActionCode.CHANGE_FIELD, field=CRASH_LOOP_FIELD, to="restart"),
    ],
    "HANG_LOOP": lambda params: [
        build_action(ActionCode.EDIT_SCRIPT, at=params.get("place")),
        build_action(ActionCode.CHANGE_FIELD, field=CRASH_LOOP_FIELD, to="restart"),
    ],
    "BAD_LOSS": _advise_change("hyperparameters.learningRate"),
    "HANG": lambda _: [build_action(ActionCode.EDIT_SCRIPT), build_action(ActionCode.RAISE_LIMIT, field="hangSeconds")],
    "NEVER_ENDED": _advise(ActionCode.EDIT_SCRIPT),
    "RUN_TIMEOUT": _advise(),
    "HANG_SUSPECTED": _advise(ActionCode.WAIT, ActionCode.STOP),
    "RANK_STOPPED": _advise(),
    "COLLECTIVE_MISMATCH": _advise(ActionCode.EDIT_SCRIPT),
    "NETWORK_CUT": _advise(ActionCode.PREFLIGHT, ActionCode.ASK_OPERATOR),
    "START_TIMEOUT": _advise(ActionCode.PREFLIGHT),
    "MASTER_PORT_TAKEN": _advise(),
    "MASTER_UNREACHABLE": _advise(ActionCode.PREFLIGHT),
    "NODES_MISSING": _advise(ActionCode.PREFLIGHT),
    "DISK_FULL": _advise_disk,
    **dict.fromkeys(NO_SPACE_CODES, _advise_disk),
    "DISK_BOUND_REACHED": lambda params: [*_advise_disk(params), build_action(ActionCode.ASK_OPERATOR)],
    "MEMORY_BOUND_REACHED": _advise(ActionCode.LOWER_BATCH, ActionCode.CHOOSE_OTHERS, ActionCode.ASK_OPERATOR),
    **dict.fromkeys(
        ("PROCESS_BOUND_REACHED", "OPEN_FILE_BOUND_REACHED"), _advise(ActionCode.EDIT_SCRIPT, ActionCode.ASK_OPERATOR)
    ),
    "OUT_OF_MEMORY": _advise(ActionCode.LOWER_BATCH, ActionCode.CHOOSE_OTHERS),
    **dict.fromkeys(
        ("ENGINE_UNREACHABLE", "ENGINE_UNAUTHORIZED", "ENGINE_NOT_CONFIGURED", "ENGINE_FORBIDDEN", "ENGINE_REJECTED"),
        _advise(ActionCode.ASK_OPERATOR),
    ),
}
"""Actions by codes that any engine may give, beside those that follow from what is declared of a cause."""

SELECT_FIELD = "distributedConfig.select"
FIELDS_TO_CHANGE: Mapping[str, tuple[str, str]] = {
    "SOONER_OTHER_TYPE": (f"{SELECT_FIELD}.gpuTypes", "types"),
    "SOONER_OTHER_ZONE": (f"{SELECT_FIELD}.zones", "zones"),
    "SOONER_NOT_EXCLUDED": (f"{SELECT_FIELD}.exclude", ""),
    "SOONER_SHORTER": ("maxRunSeconds", "seconds"),
    "SOONER_HIGHER_CLASS": ("priority", "priority"),
}
"""By the change that would let a task start sooner: the field to change, and which parameter is its value."""

UNFIT_NODE_CODES = frozenset({"NODES_MISSING", "MASTER_UNREACHABLE", "OUT_OF_MEMORY"})


def list_actions(cause: Cause, nodes: Sequence[str], *, ended: bool) -> list[Action]:
    """Return the actions for a cause. `cause` comes with what is declared of it; `nodes`: the names by node rank;
    `ended`: the task has ended."""
    found = list(ADVICE_BY_CODE.get(cause.code, lambda _: [])(cause.params))
    if cause.code in RANK_CODES:
        found.append(build_action(ActionCode.EDIT_SCRIPT, at=cause.params.get("at")))
    if isinstance(rank := cause.params.get("rank"), int):
        found.append(build_action(ActionCode.SEE_LOG, rank=rank))
    if cause.lost or cause.code in UNFIT_NODE_CODES:
        found += list_node_actions(cause.params, nodes)
    if ended:
        found.append(build_action(ActionCode.RESTART_FROM_CHECKPOINT))
    elif cause.patient:
        found.append(build_action(ActionCode.WAIT))
    if not ended and cause.code not in ADVICE_BY_CODE and not cause.patient:
        found += [build_action(ActionCode.ASK_OPERATOR), build_action(ActionCode.STOP)]
    elif ended and not cause.retry and cause.code not in ADVICE_BY_CODE:
        found.append(build_action(ActionCode.ASK_OPERATOR))
    return list({(one.code, tuple(sorted(one.params.items()))): one for one in found}.values())


def list_node_actions(params: Params, nodes: Sequence[str]) -> list[Action]:
    """Return the actions for the node of the task that the text names, if it names one."""
    name = params.get("node") or params.get("environment")
    node_rank = params.get("nodeRank")
    if not isinstance(node_rank, int):
        node_rank = nodes.index(name) if isinstance(name, str) and name in nodes else None
    if node_rank is None or not 0 <= node_rank < len(nodes):
        return []
    about = {"nodeRank": node_rank, "node": nodes[node_rank]}
    return [build_action(code, **about) for code in (ActionCode.USE_SPARE, ActionCode.WITHOUT_NODE, ActionCode.CORDON)]
