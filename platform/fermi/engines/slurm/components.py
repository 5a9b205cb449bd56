"""Components of a job, one for each run of equal nodes (a job of several is a heterogeneous one), as options of sbatch.
Pure; the drivers translate them."""

import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fermi.jobs.spec import JobSpec, Node, NodePlan, Plan

WARNING_SECONDS = 30
"""Time beyond the ranks' grace: how long before the time limit they are asked to end."""
WARNING_SIGNAL = int(signal.SIGURG)
"""Signal that Slurm sends to every process of a node. Ranks ignore it; the runner asks them to end, once."""
RUN_LIMIT_MARGIN_SECONDS = 60
"""Time beyond a task's own limit: the platform ends it, and Slurm only where the platform cannot."""
VARIABLE_OPTIONS = ("partition", "account", "qos")
"""Options of a connection that may differ by project and by priority class."""
SITE_OPTIONS = ("partition", "account", "qos", "reservation", "constraint", "mem")


@dataclass(frozen=True, slots=True)
class JobComponent:
    """Consecutive nodes of the plan that are the same to Slurm. `hosts`: the Slurm nodes in the plan's order; empty =
    any that fit. `options`: of sbatch, by their long names; True = a flag."""

    nodes: tuple[NodePlan, ...]
    hosts: tuple[str, ...]
    cpus: int
    python: str
    image: str
    options: Mapping[str, str | int | bool]


def build_comment(attempt: str) -> str:
    """Return the comment by which Slurm knows an attempt."""
    return f"fermi:{attempt}"


def parse_comment(comment: str) -> str:
    """Return the name of the attempt in a comment of ours; empty for any other."""
    return comment.removeprefix("fermi:") if comment.startswith("fermi:") else ""


def build_step_name(attempt: str, node_rank: int) -> str:
    """Return the name by which Slurm knows a node inside of an environment."""
    return f"{build_comment(attempt)}/{node_rank}"


def group_steps(steps: Mapping[str, Sequence[str]]) -> dict[str, dict[int, list[str]]]:
    """Return the numbers of steps that are nodes inside of environments, by attempt and node rank. `steps`: of all, by
    name."""
    found: dict[str, dict[int, list[str]]] = {}
    for step, numbers in steps.items():
        of, _, node_rank = parse_comment(step).rpartition("/")
        if of and node_rank.isdigit():
            found.setdefault(of, {})[int(node_rank)] = [*numbers]
    return found


def build_components(job: JobSpec, plan: Plan, connection: Mapping[str, Any], output: str) -> list[JobComponent]:
    """Return the components of a job. `output`: file of its output."""
    shared = _build_shared_options(job, plan, connection, output)
    return [
        _build_component(list(members), shared, connection)
        for _, members in groupby(plan.nodes, lambda node: _build_shape(node.node, connection))
    ]


def _build_shared_options(
    job: JobSpec, plan: Plan, connection: Mapping[str, Any], output: str
) -> dict[str, str | int | bool]:
    warning = math.ceil(plan.grace_seconds) + WARNING_SECONDS
    options: dict[str, str | int | bool] = {
        "job-name": job.name,
        "comment": build_comment(job.name),
        "output": output,
        "no-requeue": True,  # an attempt that fails is followed by another one, under another name
    }
    if limit := _choose_time_limit(job, connection, warning):
        options["time"] = limit
        warning = min(warning, parse_minutes(limit) * 30)  # at most half of it
    if (nice := (connection.get("nice") or {}).get(job.priority)) is not None:
        options["nice"] = int(nice)
    options["signal"] = f"{WARNING_SIGNAL}@{warning}"
    return options | {key: value for key, value in (connection.get("options") or {}).items() if value is not False}


def _choose_time_limit(job: JobSpec, connection: Mapping[str, Any], warning: int) -> str:
    """Return the connection's limit, or less where the task says that it takes less: Slurm fills gaps with jobs that
    surely end in time. Slurm's warning must not come before the platform's own end."""
    limit = str(connection.get("time_limit") or "")
    if job.max_run is None:
        return limit
    own = math.ceil((job.max_run + warning + RUN_LIMIT_MARGIN_SECONDS) / 60)
    return limit if 0 < parse_minutes(limit or "0") <= own else str(own)


def _build_shape(node: Node, connection: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what has to be equal of nodes that can be requested together."""
    cpus = int(node.engine.get("cpus") or max(node.cpu_cores, node.processes))
    asked = tuple((key, str(value)) for key, value in _iterate_site_options(node, connection))
    python = str(node.engine.get("python") or connection.get("python") or "python3")
    return (
        bool(node.engine.get("node")),
        cpus,
        _format_gres(node, connection),
        asked,
        python,
        _get_image(node, connection),
    )


def _build_component(
    members: list[NodePlan], shared: Mapping[str, str | int | bool], connection: Mapping[str, Any]
) -> JobComponent:
    pinned, cpus, gres, asked, python, image = _build_shape(members[0].node, connection)
    hosts = tuple(str(member.node.engine["node"]) for member in members) if pinned else ()
    options: dict[str, str | int | bool] = {**shared, **dict(asked)}
    options |= {"nodes": len(members), "ntasks": len(members), "ntasks-per-node": 1, "cpus-per-task": cpus}
    if hosts:
        options["nodelist"] = ",".join(hosts)
    if gres:
        options["gres"] = gres
    return JobComponent(tuple(members), hosts, cpus, python, image, options)


def _iterate_site_options(node: Node, connection: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for key in SITE_OPTIONS:
        value = node.engine.get(key) or connection.get(key)
        if key == "mem" and not value and node.memory_gb > 1:  # 1 = not known
            value = f"{node.memory_gb}G"
        if value:
            yield key, value


def _format_gres(node: Node, connection: Mapping[str, Any]) -> str:
    """Return the GPUs; none for GPUs that are emulated, unless their name is configured."""
    if own := node.engine.get("gres"):
        return str(own)
    kind = connection.get("gres") or ("gpu" if node.has_cuda else "")
    return f"{kind}:{node.gpu_count}" if kind and node.gpu_count else ""


def _get_image(node: Node, connection: Mapping[str, Any]) -> str:
    container = connection.get("container")
    return str(node.engine.get("image") or container.get("image") or node.image) if container else ""


def parse_minutes(limit: str) -> int:
    """Return the minutes of a time limit as sbatch takes it: `90`, `mm:ss`, `hh:mm:ss`, `d-hh`, `d-hh:mm` or
    `d-hh:mm:ss`."""
    days, dash, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, mins, secs = [*parts, 0, 0][:3]
    else:
        hours, mins, secs = {1: (0, *parts, 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
    return int(days or 0) * 1440 + hours * 60 + mins + math.ceil(secs / 60)


def parse_megabytes(mem: str) -> int:
    """Return the megabytes of a size as sbatch takes it; plain numbers are megabytes."""
    unit = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}.get(mem[-1:].upper())
    return math.ceil(float(mem[:-1]) * unit) if unit else int(mem)
