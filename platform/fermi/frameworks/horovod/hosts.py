"""Builds `host:slots` as `horovodrun` takes it, for people who start a job without the platform."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec, Node, Problem, Value

FIELD = "distributedConfig.options.hosts"
_HOST = re.compile(r"[\w.-]+")
_PAIR = re.compile(rf"({_HOST.pattern}):([1-9][0-9]{{0,8}})")
"""Horovod's own pattern (hosts.py:79), but for a host without slots, which it accepts and cannot use."""

_FLAGS = {
    "fusionThresholdMb": "--fusion-threshold-mb",
    "cycleTimeMs": "--cycle-time-ms",
    "timeoutSeconds": "--gloo-timeout-seconds",
}


def find_problems(spec: JobSpec) -> list[Problem]:
    """Return what breaks Horovod's own rules: each part is `host:slots`, and there are at least as many slots as
    processes."""
    found = spec.options.get("hosts")
    if not isinstance(found, str):
        return []  # nothing said, or no text at all, which the schema refuses
    near = _format_hosts(_list_node_hosts(spec))
    for part in (parts := found.split(",")):
        if not _PAIR.fullmatch(part):
            return [Problem(FIELD, "HOROVOD_HOSTS_INVALID", {"found": part, "nearest": near})]
    host, times = Counter(part.partition(":")[0] for part in parts).most_common(1)[0]
    if times > 1:
        return [Problem(FIELD, "HOROVOD_HOST_TWICE", {"found": host, "nearest": near})]
    if (slots := sum(_parse_hosts(found).values())) < spec.world_size:
        params = {"slots": slots, "worldSize": spec.world_size, "nearest": near}
        return [Problem(FIELD, "HOROVOD_TOO_FEW_SLOTS", params)]
    return []


def find_warnings(spec: JobSpec) -> list[Problem]:
    """Return a warning of nodes without an address that could be in `host:slots`. The platform itself needs none."""
    if "hosts" in spec.options:
        return []
    nameless = [node.name for node in spec.nodes if _find_address(node) is None]
    return [Problem(FIELD, "HOROVOD_HOST_UNUSABLE", {"nodes": ", ".join(nameless)})] if nameless else []


def list_hosts(spec: JobSpec) -> Mapping[str, int]:
    """Return slots by host: the user's, else from what is known of the nodes."""
    return _parse_hosts(spec.options["hosts"]) if "hosts" in spec.options else _list_node_hosts(spec)


def render_hostfile(hosts: Mapping[str, int]) -> str:
    return "".join(f"{host} slots={slots}\n" for host, slots in hosts.items())


def render_horovodrun(
    spec: JobSpec, hosts: Mapping[str, int], timeline: Value | None, command: Sequence[Value]
) -> Value:
    """Return the command line that starts the same training without the platform."""
    flags = [f"{_FLAGS[name]} {spec.options[name]:g}" for name in _FLAGS if name in spec.options]
    if spec.options.get("autotune"):
        flags.append("--autotune")
    if timeline is not None:
        flags.append(f"--timeline-filename {shlex.quote(str(timeline))}")
    start = " ".join([f"horovodrun --gloo -np {spec.world_size} -H {_format_hosts(hosts)}", *flags])
    pieces: list[Any] = [f"{start} \\\n "]
    for word in command:
        pieces += [" ", shlex.quote(word) if isinstance(word, str) else word]
    return (*pieces, "\n")


def _find_address(node: Node) -> str | None:
    return next((name for name in (node.ip, node.host, node.name) if _HOST.fullmatch(name)), None)


def _list_node_hosts(spec: JobSpec) -> dict[str, int]:
    """Return slots by host in the order of ranks. Nodes that share an address are one host."""
    hosts: dict[str, int] = {}
    for at in place_nodes(spec.nodes, spec.master):
        host = _find_address(at.node) or f"node-{at.node_rank}"
        hosts[host] = hosts.get(host, 0) + at.node.processes
    return hosts


def _parse_hosts(hosts: str) -> dict[str, int]:
    return {host: int(slots) for host, _, slots in (part.partition(":") for part in hosts.split(","))}


def _format_hosts(hosts: Mapping[str, int]) -> str:
    return ",".join(f"{host}:{slots}" for host, slots in hosts.items())
