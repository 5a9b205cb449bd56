"""What is wrong with a node by itself, and in which versions it differs from the others."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.planning import plugins
from fermi.preflight.facts import Fact, NodeUnderTest, PreflightFacts
from fermi.preflight.findings import FAIL, PASS, WARN, PreflightFinding

REQUIRED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE")
GPU_FREE_WARN, GPU_FREE_FAIL = 0.9, 0.2
"""Of its memory. A GPU that nobody uses has 97 % and more."""
DISK_WARN_MB, DISK_FAIL_MB = 5_000, 200
SHM_WARN_MB = 512
"""Docker's default is 64 MB: too little for data loaders and for NCCL between the GPUs of a node."""


def check_node(member: NodeUnderTest, facts: PreflightFacts, stack: str) -> list[PreflightFinding]:
    if not facts.by_rank.get(member.rank):
        return [PreflightFinding("answer", FAIL, "NODE_SILENT", {"node": member.name})]
    found = []
    if not facts.get(member.rank, "end"):
        found.append(PreflightFinding("answer", FAIL, "NODE_CUT_SHORT", {"node": member.name}))
    if seen := facts.get(member.rank, "node"):
        found += [
            *_check_variables(member, seen),
            *_check_gpu_memory(member, seen),
            *_check_disks(member, seen),
            *_check_shared_memory(member, seen),
        ]
    if devices := facts.get(member.rank, "devices"):
        found += _check_devices(member, seen, devices, stack)
    return found


def _check_variables(member: NodeUnderTest, node_facts: Fact) -> Iterator[PreflightFinding]:
    env, wrong = node_facts["env"], False
    if missing := [name for name in REQUIRED if not env.get(name)]:
        wrong = True
        yield PreflightFinding(
            "variables", FAIL, "VARIABLE_MISSING", {"node": member.name, "names": ", ".join(missing)}
        )
    rules = {"MASTER_PORT": (1, 65535), "WORLD_SIZE": (1, 10**9), "RANK": (0, _read_integer(env, "WORLD_SIZE", 10**9) -
             1), "LOCAL_RANK": (0, _read_integer(env, "LOCAL_WORLD_SIZE", 10**9) - 1)}  # fmt: skip
    for name, (low, high) in rules.items():
        value = env.get(name)
        if value and not (value.isdecimal() and low <= int(value) <= high):
            wrong = True
            params = {"node": member.name, "name": name, "found": value, "low": low, "high": high}
            yield PreflightFinding("variables", FAIL, "VARIABLE_WRONG", params)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if (value := env.get(name)) and not _matches_interface(value, node_facts["interfaces"]):
            wrong = True
            there = ", ".join(sorted(node_facts["interfaces"]))
            params = {"node": member.name, "name": name, "found": value, "interfaces": there}
            yield PreflightFinding("variables", FAIL, "INTERFACE_UNKNOWN", params)
    if not wrong:
        yield PreflightFinding("variables", PASS, "VARIABLES_OK", value=env)


def _read_integer(env: Mapping[str, str], name: str, otherwise: int) -> int:
    return int(env[name]) if (env.get(name) or "").isdecimal() else otherwise


def _matches_interface(wanted: str, interfaces: Sequence[str]) -> bool:
    """NCCL's own language: `=eth0,eth1` exactly these, `^docker` all but those, else prefixes; gloo takes names."""
    if wanted.startswith("^"):
        return True
    exact, names = wanted.startswith("="), wanted.lstrip("=").split(",")
    return any(there == name if exact else there.startswith(name) for name in names for there in interfaces)


def _check_gpu_memory(member: NodeUnderTest, node_facts: Fact) -> Iterator[PreflightFinding]:
    """What others hold of the GPUs that this node may use."""
    held, level = [], PASS
    for gpu in node_facts["gpus"]:
        free = gpu["freeMb"] / gpu["totalMb"] if gpu.get("totalMb") else 1.0
        if free < GPU_FREE_WARN:
            level = FAIL if free < GPU_FREE_FAIL else max(level, WARN, key=(PASS, WARN, FAIL).index)
            by = ", ".join(f"{each['name']} ({each['pid']})" for each in gpu["processes"]) or "–"
            held.append(f"GPU {gpu['index']}: {gpu['freeMb']} / {gpu['totalMb']} MB, {by}")
    if held:
        yield PreflightFinding(
            "gpuMemory", level, "GPU_MEMORY_HELD", {"node": member.name, "gpus": "; ".join(held)}, node_facts["gpus"]
        )
    elif node_facts["gpus"]:
        yield PreflightFinding(
            "gpuMemory", PASS, "GPU_MEMORY_OK", {"count": len(node_facts["gpus"])}, node_facts["gpus"]
        )


def _check_disks(member: NodeUnderTest, node_facts: Fact) -> Iterator[PreflightFinding]:
    low = [disk for disk in node_facts["disks"] if disk["freeMb"] < DISK_WARN_MB]
    for disk in low:
        level = FAIL if disk["freeMb"] < DISK_FAIL_MB else WARN
        yield PreflightFinding(
            "disk", level, "DISK_LOW", {"node": member.name, "path": disk["path"], "free": disk["freeMb"]}, disk
        )
    if not low:
        yield PreflightFinding("disk", PASS, "DISK_OK", value=node_facts["disks"])


def _check_shared_memory(member: NodeUnderTest, node_facts: Fact) -> Iterator[PreflightFinding]:
    if (shm := node_facts.get("shm")) is None:
        return
    if shm["freeMb"] < SHM_WARN_MB:
        params = {"node": member.name, "free": shm["freeMb"], "total": shm["totalMb"]}
        yield PreflightFinding("sharedMemory", WARN, "SHM_LOW", params, shm)
    else:
        yield PreflightFinding("sharedMemory", PASS, "SHM_OK", {"free": shm["freeMb"]}, shm)


def _check_devices(member: NodeUnderTest, node_facts: Fact, devices: Fact, stack: str) -> Iterator[PreflightFinding]:
    """Check the libraries and their GPUs. Where no library is named, one of them is enough."""
    wrong, names = False, list(dict.fromkeys([*plugins.list_stacks(), *filter(None, [stack])]))
    stack = stack or next((name for name in reversed(names) if devices.get(name)), names[0])
    for name in names:
        found, needed = devices.get(name), name == stack
        about = {"node": member.name, "name": name}
        if found is None and needed:
            wrong = True
            yield PreflightFinding("devices", FAIL, "STACK_ABSENT", about)
        elif found and found.get("error"):
            wrong = True
            yield PreflightFinding(
                "devices", FAIL if needed else WARN, "STACK_BROKEN", {**about, "why": found["error"]}, found
            )
        elif found and needed and "gpus" in found:
            there = len(node_facts.get("gpus", ()))
            expected = member.gpus if member.gpus is not None else there
            if found["gpus"] < expected:
                wrong = True
                params = {**about, "expected": expected, "found": found["gpus"], "there": there}
                yield PreflightFinding("devices", FAIL, "DEVICES_MISSING", params, found)
    if not wrong:
        yield PreflightFinding("devices", PASS, "DEVICES_OK", value={name: devices.get(name) for name in names})


def read_versions(rank: int, facts: PreflightFacts) -> dict[str, str]:
    """Return what is installed, overridden by the versions that the stack reports when it runs."""
    found = dict(facts.get(rank, "node").get("versions", {}))
    torch = facts.get(rank, "devices").get("torch") or {}
    found |= {
        name: torch[key] for name, key in (("torch", "version"), ("cuda", "cuda"), ("nccl", "nccl")) if torch.get(key)
    }
    return found


def find_version_drift(
    members: Sequence[NodeUnderTest], facts: PreflightFacts, stack: str
) -> Iterator[tuple[list[int], PreflightFinding]]:
    """Yield the nodes that differ from most, and in what; where there is no majority, all that report a version."""
    on_gpu = {m.rank for m in members if facts.get(m.rank, "node").get("gpus")}
    stated = {m.rank: read_versions(m.rank, facts) for m in members}
    for name, (pattern, level) in _list_compared(stack).items():
        ranks = on_gpu if name in ("cuda", "nccl", "driver") else stated.keys()
        values = {rank: _cut_version(stated[rank][name], pattern) for rank in ranks if stated[rank].get(name)}
        (most, count), *others = Counter(values.values()).most_common() or [("", 0)]
        if not others:
            continue
        odd = [rank for rank, value in values.items() if value != most or count == others[0][1]]
        names = {m.rank: m.name for m in members}
        odd_ones = ", ".join(f"{names[rank]} {stated[rank][name]}" for rank in odd)
        usual = sorted({stated[rank][name] for rank in values if rank not in odd})
        params = {"name": name, "found": odd_ones, "others": ", ".join(usual) or "–"}
        yield odd, PreflightFinding("versions", level, "VERSION_DRIFT", params, [stated[rank][name] for rank in odd])


_MINOR = r"\d+\.\d+"


def _list_compared(stack: str) -> dict[str, tuple[str, str]]:
    """Return name -> how much of a version must agree, and the level where it does not. Torch ranks of two minor
    versions, and NCCL of any two versions, are incompatible."""
    parts = {"torch": _MINOR, "nccl": r".*", "jax": _MINOR, "jaxlib": _MINOR}
    parts |= {"cuda": r"\d+", "driver": r"\d+", "python": _MINOR}
    fatal = {"torch": ("torch", "nccl"), "jax": ("jax", "jaxlib")}.get(stack or "torch", (stack,))
    return {name: (parts.get(name, _MINOR), FAIL if name in fatal else WARN) for name in [*parts, *fatal]}


def _cut_version(version: Any, pattern: str) -> str:
    found = re.match(pattern, str(version))
    return found[0] if found else str(version)
