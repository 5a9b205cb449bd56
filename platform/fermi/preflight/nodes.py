"""What is wrong with a node by itself, and in which versions it differs from the others."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.planning import plugins
from fermi.preflight.facts import Fact, Facts, Member
from fermi.preflight.findings import FAIL, PASS, WARN, Finding

REQUIRED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE")
GPU_FREE_WARN, GPU_FREE_FAIL = 0.9, 0.2
"""Of its memory. A GPU that nobody uses has 97 % and more."""
DISK_WARN_MB, DISK_FAIL_MB = 5_000, 200
SHM_WARN_MB = 512
"""Docker's default is 64 MB: too little for data loaders and for NCCL between the GPUs of a node."""


def findings(member: Member, facts: Facts, stack: str) -> list[Finding]:
    if not facts.said.get(member.rank):
        return [Finding("answer", FAIL, "NODE_SILENT", {"node": member.name})]
    found = []
    if not facts.get(member.rank, "end"):
        found.append(Finding("answer", FAIL, "NODE_CUT_SHORT", {"node": member.name}))
    if seen := facts.get(member.rank, "node"):
        found += [*_variables(member, seen), *_memory(member, seen), *_disks(member, seen), *_shared(member, seen)]
    if devices := facts.get(member.rank, "devices"):
        found += _devices(member, seen, devices, stack)
    return found


def _variables(member: Member, seen: Fact) -> Iterator[Finding]:
    env, wrong = seen["env"], False
    if missing := [name for name in REQUIRED if not env.get(name)]:
        wrong = True
        yield Finding("variables", FAIL, "VARIABLE_MISSING", {"node": member.name, "names": ", ".join(missing)})
    rules = {"MASTER_PORT": (1, 65535), "WORLD_SIZE": (1, 10**9), "RANK": (0, _integer(env, "WORLD_SIZE", 10**9) - 1),
             "LOCAL_RANK": (0, _integer(env, "LOCAL_WORLD_SIZE", 10**9) - 1)}  # fmt: skip
    for name, (low, high) in rules.items():
        value = env.get(name)
        if value and not (value.isdecimal() and low <= int(value) <= high):
            wrong = True
            params = {"node": member.name, "name": name, "found": value, "low": low, "high": high}
            yield Finding("variables", FAIL, "VARIABLE_WRONG", params)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if (value := env.get(name)) and not _matches(value, seen["interfaces"]):
            wrong = True
            there = ", ".join(sorted(seen["interfaces"]))
            params = {"node": member.name, "name": name, "found": value, "interfaces": there}
            yield Finding("variables", FAIL, "INTERFACE_UNKNOWN", params)
    if not wrong:
        yield Finding("variables", PASS, "VARIABLES_OK", value=env)


def _integer(env: Mapping[str, str], name: str, otherwise: int) -> int:
    return int(env[name]) if (env.get(name) or "").isdecimal() else otherwise


def _matches(wanted: str, interfaces: Sequence[str]) -> bool:
    """NCCL's own language: `=eth0,eth1` exactly these, `^docker` all but those, else prefixes; gloo takes names."""
    if wanted.startswith("^"):
        return True
    exact, names = wanted.startswith("="), wanted.lstrip("=").split(",")
    return any(there == name if exact else there.startswith(name) for name in names for there in interfaces)


def _memory(member: Member, seen: Fact) -> Iterator[Finding]:
    """What others hold of the GPUs that this node may use."""
    held, level = [], PASS
    for gpu in seen["gpus"]:
        free = gpu["freeMb"] / gpu["totalMb"] if gpu.get("totalMb") else 1.0
        if free < GPU_FREE_WARN:
            level = FAIL if free < GPU_FREE_FAIL else max(level, WARN, key=(PASS, WARN, FAIL).index)
            by = ", ".join(f"{each['name']} ({each['pid']})" for each in gpu["processes"]) or "–"
            held.append(f"GPU {gpu['index']}: {gpu['freeMb']} / {gpu['totalMb']} MB, {by}")
    if held:
        yield Finding(
            "gpuMemory", level, "GPU_MEMORY_HELD", {"node": member.name, "gpus": "; ".join(held)}, seen["gpus"]
        )
    elif seen["gpus"]:
        yield Finding("gpuMemory", PASS, "GPU_MEMORY_OK", {"count": len(seen["gpus"])}, seen["gpus"])


def _disks(member: Member, seen: Fact) -> Iterator[Finding]:
    low = [disk for disk in seen["disks"] if disk["freeMb"] < DISK_WARN_MB]
    for disk in low:
        level = FAIL if disk["freeMb"] < DISK_FAIL_MB else WARN
        yield Finding(
            "disk", level, "DISK_LOW", {"node": member.name, "path": disk["path"], "free": disk["freeMb"]}, disk
        )
    if not low:
        yield Finding("disk", PASS, "DISK_OK", value=seen["disks"])


def _shared(member: Member, seen: Fact) -> Iterator[Finding]:
    if (shm := seen.get("shm")) is None:
        return
    if shm["freeMb"] < SHM_WARN_MB:
        params = {"node": member.name, "free": shm["freeMb"], "total": shm["totalMb"]}
        yield Finding("sharedMemory", WARN, "SHM_LOW", params, shm)
    else:
        yield Finding("sharedMemory", PASS, "SHM_OK", {"free": shm["freeMb"]}, shm)


def _devices(member: Member, seen: Fact, devices: Fact, stack: str) -> Iterator[Finding]:
    """Check the libraries and their GPUs. Where no library is named, one of them is enough."""
    wrong, names = False, list(dict.fromkeys([*plugins.stacks(), *filter(None, [stack])]))
    stack = stack or next((name for name in reversed(names) if devices.get(name)), names[0])
    for name in names:
        found, needed = devices.get(name), name == stack
        about = {"node": member.name, "name": name}
        if found is None and needed:
            wrong = True
            yield Finding("devices", FAIL, "STACK_ABSENT", about)
        elif found and found.get("error"):
            wrong = True
            yield Finding("devices", FAIL if needed else WARN, "STACK_BROKEN", {**about, "why": found["error"]}, found)
        elif found and needed and "gpus" in found:
            there = len(seen.get("gpus", ()))
            expected = member.gpus if member.gpus is not None else there
            if found["gpus"] < expected:
                wrong = True
                params = {**about, "expected": expected, "found": found["gpus"], "there": there}
                yield Finding("devices", FAIL, "DEVICES_MISSING", params, found)
    if not wrong:
        yield Finding("devices", PASS, "DEVICES_OK", value={name: devices.get(name) for name in names})


def versions(rank: int, facts: Facts) -> dict[str, str]:
    """Return what is installed, overridden by the versions that the stack reports when it runs."""
    found = dict(facts.get(rank, "node").get("versions", {}))
    torch = facts.get(rank, "devices").get("torch") or {}
    found |= {
        name: torch[key] for name, key in (("torch", "version"), ("cuda", "cuda"), ("nccl", "nccl")) if torch.get(key)
    }
    return found


def drift(members: Sequence[Member], facts: Facts, stack: str) -> Iterator[tuple[list[int], Finding]]:
    """Yield the nodes that differ from most, and in what; where there is no majority, all that report a version."""
    on_gpu = {m.rank for m in members if facts.get(m.rank, "node").get("gpus")}
    stated = {m.rank: versions(m.rank, facts) for m in members}
    for name, (pattern, level) in _compared(stack).items():
        ranks = on_gpu if name in ("cuda", "nccl", "driver") else stated.keys()
        values = {rank: _cut(stated[rank][name], pattern) for rank in ranks if stated[rank].get(name)}
        (most, count), *others = Counter(values.values()).most_common() or [("", 0)]
        if not others:
            continue
        odd = [rank for rank, value in values.items() if value != most or count == others[0][1]]
        names = {m.rank: m.name for m in members}
        odd_ones = ", ".join(f"{names[rank]} {stated[rank][name]}" for rank in odd)
        usual = sorted({stated[rank][name] for rank in values if rank not in odd})
        params = {"name": name, "found": odd_ones, "others": ", ".join(usual) or "–"}
        yield odd, Finding("versions", level, "VERSION_DRIFT", params, [stated[rank][name] for rank in odd])


_MINOR = r"\d+\.\d+"


def _compared(stack: str) -> dict[str, tuple[str, str]]:
    """Return name -> how much of a version must agree, and the level where it does not. Torch ranks of two minor
    versions, and NCCL of any two versions, are incompatible."""
    parts = {"torch": _MINOR, "nccl": r".*", "jax": _MINOR, "jaxlib": _MINOR}
    parts |= {"cuda": r"\d+", "driver": r"\d+", "python": _MINOR}
    fatal = {"torch": ("torch", "nccl"), "jax": ("jax", "jaxlib")}.get(stack or "torch", (stack,))
    return {name: (parts.get(name, _MINOR), FAIL if name in fatal else WARN) for name in [*parts, *fatal]}


def _cut(version: Any, pattern: str) -> str:
    found = re.match(pattern, str(version))
    return found[0] if found else str(version)
