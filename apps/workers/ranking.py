"""Ranks of a group's workers, and the problems of a group. Pure functions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fermi.jobs.ranks import WorkerSlot, assign_worker_slots, parse_worker_name
from fermi.jobs.spec import Problem
from fermi.planning import validate, variables
from fermi.schema import suggestions


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """A group's settings and its workers."""

    master_address: str
    world_size: int | None
    master_port: int
    script: str
    env: Mapping[str, str]
    secret_env: Mapping[str, str]
    workers: Collection[str]

    @property
    def nodes(self) -> list[str]:
        return sorted({parse_worker_name(worker)[0] for worker in self.workers})

    @property
    def master(self) -> str:
        """The node of rank 0: the named one, or the only one."""
        return self.master_address or (self.nodes[0] if len(self.nodes) == 1 else "")

    @property
    def effective_world_size(self) -> int:
        return len(self.workers) if self.world_size is None else self.world_size

    def seats(self) -> Sequence[WorkerSlot]:
        """Return the rank of each worker."""
        return assign_worker_slots(self.workers, self.master, self.effective_world_size)


def check_group(line: GroupLayout) -> list[Problem]:
    """Return what keeps the group from being started."""
    found = check_settings(line)
    if not line.workers:
        return [*found, Problem("workers", "GROUP_EMPTY")]
    if not line.master:
        found.append(Problem("masterAddress", "GROUP_MASTER_REQUIRED", {"allowed": ", ".join(line.nodes)}))
    if not line.script:
        found.append(Problem("script", "GROUP_SCRIPT_REQUIRED"))
    return found


def check_settings(line: GroupLayout) -> list[Problem]:
    """Return settings that contradict the members or the rules; missing settings are no problem here."""
    found: list[Problem] = []
    params: dict[str, object]
    there, master = len(line.workers), line.master_address
    if master and line.workers and master not in line.nodes:
        node = _get_node_name(master)
        near = node if node in line.nodes else suggestions.suggest_name(master, line.nodes)
        params = {"master": master, "allowed": ", ".join(line.nodes), "nearest": near}
        found.append(Problem("masterAddress", "MASTER_NOT_IN_GROUP", params))
    if line.world_size is not None and (line.world_size < 1 or (there and line.world_size > there)):
        params = {"found": line.world_size, "high": there}
        found.append(Problem("worldSize", "WORLD_SIZE_TOO_LARGE", params))
    found += validate.check_master_port(line.master_port, "masterPort")
    return found + variables.find_problems(line.env, line.secret_env)


def _get_node_name(name: str) -> str:
    """Return `gn6` for `gn6-0`: users write the worker's id instead of the node's name."""
    try:
        return parse_worker_name(name)[0]
    except ValueError:
        return name
