"""Lists the actions for a cause, of whichever engine: from what is declared of it, and from what fills its text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fermi.diagnosis import Action
from fermi.diagnosis.actions import ANYWAY, Do, take
from fermi.jobs.causes import BY_RANKS, WITHOUT_ROOM
from fermi.jobs.spec import Cause

Params = Mapping[str, Any]
Advice = Callable[[Params], list[Action]]


def _just(*codes: Do) -> Advice:
    return lambda _: [take(code) for code in codes]


def _change(field: str, *more: Do) -> Advice:
    return lambda _: [take(Do.CHANGE_FIELD, field=field), *(take(code) for code in more)]


def _of_disk(params: Params) -> list[Action]:
    return [take(Do.FREE_DISK, path=params["path"], node=params.get("node"))] if params.get("path") else []


def _of_holders(params: Params) -> list[Action]:
    tasks = dict.fromkeys(str(holder["task"]) for holder in params.get("holders", ()) if holder.get("task"))
    return [*(take(Do.SEE_TASK, task=task) for task in tasks), take(Do.CHOOSE_OTHERS), take(Do.WAIT)]


def _of_secret(params: Params) -> list[Action]:
    return [take(Do.ADD_SECRET, secret=params["secret"])] if params.get("secret") else []


KNOWN: Mapping[str, Advice] = {
    # waiting
    "DATASET_PREPARING": _just(Do.WAIT),
    "WAITING_FOR_ENVIRONMENTS": _of_holders,
    "ENVIRONMENT_UNAVAILABLE": _just(Do.CHOOSE_OTHERS, Do.ASK_OPERATOR),
    "PORTS_TAKEN": _change("distributedConfig.masterPort", Do.ASK_OPERATOR),
    "RESTARTING": _just(Do.WAIT),
    **dict.fromkeys(("WAITING_FOR_TURN", "MAKING_ROOM", "GAVE_WAY"), _just(Do.WAIT)),
    **dict.fromkeys(
        ("WAITING_FOR_CAPACITY", "WAITING_FOR_RESERVATION", "WAITING_FOR_MAINTENANCE", "WAITING_FOR_MIN_RUN"),
        _just(Do.CHOOSE_OTHERS, Do.WAIT),
    ),
    "WAITING_FOR_FIT": _just(Do.CHOOSE_OTHERS),
    **dict.fromkeys(
        ("LIMIT_GPUS", "LIMIT_TASKS", "LIMIT_USER_GPUS", "LIMIT_USER_TASKS"), _just(Do.WAIT, Do.ASK_OPERATOR)
    ),
    **dict.fromkeys(("LIMIT_GPU_HOURS", "LIMIT_USER_GPU_HOURS", "BUDGET_SPENT"), _just(Do.ASK_OPERATOR, Do.WAIT)),
    "BUDGET_PREEMPTIBLE_ONLY": _change("preemptible", Do.ASK_OPERATOR),
    "PAUSED": _just(Do.RESUME),
    "SECRET_MISSING": _of_secret,
    "SECRET_UNREADABLE": _just(Do.ASK_OPERATOR),
    "PREFLIGHT_RUNNING": _just(Do.WAIT),
    "PROCESS_SILENT": _just(Do.WAIT, Do.ASK_OPERATOR),
    "ATTEMPT_UNREADABLE": _just(Do.ASK_OPERATOR),
    "STOP_UNCONFIRMED": _just(Do.WAIT, Do.ASK_OPERATOR),
    # ends without an attempt
    "DATASET_FAILED": _change("datasetVersionId"),
    "INITIALIZE_TIMEOUT": _just(Do.ASK_OPERATOR),
    "QUEUE_TIMEOUT": _just(Do.CHOOSE_OTHERS),
    "PREFLIGHT_FAILED": _just(Do.CHOOSE_OTHERS, Do.ASK_OPERATOR),
    # ends of an attempt
    "CRASH_LOOP": lambda params: [
        take(Do.EDIT_SCRIPT, at=params.get("at")),
        take(Do.CHANGE_FIELD, field=ANYWAY, to="restart"),
    ],
    "HANG_LOOP": lambda params: [
        take(Do.EDIT_SCRIPT, at=params.get("place")),
        take(Do.CHANGE_FIELD, field=ANYWAY, to="restart"),
    ],
    "BAD_LOSS": _change("hyperparameters.learningRate"),
    "HANG": lambda _: [take(Do.EDIT_SCRIPT), take(Do.RAISE_LIMIT, field="hangSeconds")],
    "NEVER_ENDED": _just(Do.EDIT_SCRIPT),
    "RUN_TIMEOUT": _just(),
    "HANG_SUSPECTED": _just(Do.WAIT, Do.STOP),
    "RANK_STOPPED": _just(),
    "COLLECTIVE_MISMATCH": _just(Do.EDIT_SCRIPT),
    "NETWORK_CUT": _just(Do.PREFLIGHT, Do.ASK_OPERATOR),
    "START_TIMEOUT": _just(Do.PREFLIGHT),
    "MASTER_PORT_TAKEN": _just(),
    "MASTER_UNREACHABLE": _just(Do.PREFLIGHT),
    "NODES_MISSING": _just(Do.PREFLIGHT),
    "DISK_FULL": _of_disk,
    **dict.fromkeys(WITHOUT_ROOM, _of_disk),
    "DISK_BOUND_REACHED": lambda params: [*_of_disk(params), take(Do.ASK_OPERATOR)],
    "MEMORY_BOUND_REACHED": _just(Do.LOWER_BATCH, Do.CHOOSE_OTHERS, Do.ASK_OPERATOR),
    **dict.fromkeys(("PROCESS_BOUND_REACHED", "OPEN_FILE_BOUND_REACHED"), _just(Do.EDIT_SCRIPT, Do.ASK_OPERATOR)),
    "OUT_OF_MEMORY": _just(Do.LOWER_BATCH, Do.CHOOSE_OTHERS),
    **dict.fromkeys(
        ("ENGINE_UNREACHABLE", "ENGINE_UNAUTHORIZED", "ENGINE_NOT_CONFIGURED", "ENGINE_FORBIDDEN", "ENGINE_REJECTED"),
        _just(Do.ASK_OPERATOR),
    ),
}
"""Actions by codes that any engine may give, beside those that follow from what is declared of a cause."""

SELECT = "distributedConfig.select"
CHANGES: Mapping[str, tuple[str, str]] = {
    "SOONER_OTHER_TYPE": (f"{SELECT}.gpuTypes", "types"),
    "SOONER_OTHER_ZONE": (f"{SELECT}.zones", "zones"),
    "SOONER_NOT_EXCLUDED": (f"{SELECT}.exclude", ""),
    "SOONER_SHORTER": ("maxRunSeconds", "seconds"),
    "SOONER_HIGHER_CLASS": ("priority", "priority"),
}
"""By the change that would let a task start sooner: the field to change, and which parameter is its value."""

NODE_MAY_BE_UNFIT = frozenset({"NODES_MISSING", "MASTER_UNREACHABLE", "OUT_OF_MEMORY"})


def actions(cause: Cause, nodes: Sequence[str], *, ended: bool) -> list[Action]:
    """Return the actions for a cause. `cause` comes with what is declared of it; `nodes`: the names by node rank;
    `ended`: the task has ended."""
    found = list(KNOWN.get(cause.code, lambda _: [])(cause.params))
    if cause.code in BY_RANKS:
        found.append(take(Do.EDIT_SCRIPT, at=cause.params.get("at")))
    if isinstance(rank := cause.params.get("rank"), int):
        found.append(take(Do.SEE_LOG, rank=rank))
    if cause.lost or cause.code in NODE_MAY_BE_UNFIT:
        found += of_node(cause.params, nodes)
    if ended:
        found.append(take(Do.RESTART_FROM_CHECKPOINT))
    elif cause.patient:
        found.append(take(Do.WAIT))
    if not ended and cause.code not in KNOWN and not cause.patient:
        found += [take(Do.ASK_OPERATOR), take(Do.STOP)]
    elif ended and not cause.retry and cause.code not in KNOWN:
        found.append(take(Do.ASK_OPERATOR))
    return list({(one.code, tuple(sorted(one.params.items()))): one for one in found}.values())


def of_node(params: Params, nodes: Sequence[str]) -> list[Action]:
    """Return the actions for the node of the task that the text names, if it names one."""
    name = params.get("node") or params.get("environment")
    node_rank = params.get("nodeRank")
    if not isinstance(node_rank, int):
        node_rank = nodes.index(name) if isinstance(name, str) and name in nodes else None
    if node_rank is None or not 0 <= node_rank < len(nodes):
        return []
    about = {"nodeRank": node_rank, "node": nodes[node_rank]}
    return [take(code, **about) for code in (Do.USE_SPARE, Do.WITHOUT_NODE, Do.CORDON)]
