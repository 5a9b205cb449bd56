"""Discover dev environments of a Slurm cluster: running allocations that their users offer, by a comment whose first
word is `fermi` (`salloc --comment="fermi project=nlp name=notes"`; `scontrol update jobid=7 comment=fermi` for one that
runs). Each of its nodes is an environment, for as long as the job runs. Nothing is discovered unless the connection
says `discover`."""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.engines.discovery import DiscoveredEnvironment
from fermi.engines.slurm.access import create_driver
from fermi.engines.slurm.allocations import JOB_KEY, NODE_KEY, USER_KEY, parse_offer
from fermi.engines.slurm.driver import SlurmJob

DEFAULT_PROJECT = "default"
POLL_SECONDS = 5.0
MAX_NODES = 1024
"""Nodes of one allocation."""
MAX_NAME_CHARS = 100
_PART = re.compile(r"([^\[\],]+)(?:\[([\d,-]+)\])?([^\[\],]*)(?:,|$)")
_GRES = re.compile(r"gpu:(?:([\w.-]+):)?(\d+)", re.IGNORECASE)


def follow(connection: Mapping[str, Any], stop: threading.Event) -> Iterator[list[DiscoveredEnvironment]]:
    """Yield the environments; see `fermi.engines.base.DiscoveryModule`."""
    if not connection.get("discover"):
        yield []
        stop.wait()
        return
    asked, last = create_driver(connection), None
    while not stop.is_set():
        seen = find_environments(asked.jobs())
        if seen != last:
            last = seen
            yield seen
        stop.wait(POLL_SECONDS)


def find_environments(jobs: Sequence[SlurmJob]) -> list[DiscoveredEnvironment]:
    """Return the environments among these jobs, in the order of their keys. Pure."""
    seen = [one for job in jobs if job.state in ("RUNNING", "SUSPENDED") for one in _iterate_environments(job)]
    return sorted(seen, key=lambda one: one.key)


def _iterate_environments(job: SlurmJob) -> Iterator[DiscoveredEnvironment]:
    said, hosts = parse_offer(job.comment), expand_node_list(job.nodes)
    if said is None or "COMPLETING" in job.flags:
        return
    name = (said.get("name") or f"{job.user or 'job'}-{job.id}")[:MAX_NAME_CHARS]
    for index, host in enumerate(hosts):
        kind, count = _parse_gpus(job.gres[index] if index < len(job.gres) else "")
        yield DiscoveredEnvironment(
            f"{job.id}/{host}", name if len(hosts) == 1 else f"{name}-{host}"[:MAX_NAME_CHARS],
            said.get("project") or DEFAULT_PROJECT, job.state == "RUNNING", owner=job.user, zone=job.partition,
            gpu_type=kind, gpu_count=count, cpu_cores=max(1, job.cpus // len(hosts)),
            memory_gb=max(1, job.memory_mb // len(hosts) // 1024), host=host, started_at=job.start or None,
            engine={JOB_KEY: job.id, NODE_KEY: host, USER_KEY: job.user},
        )  # fmt: skip


def _parse_gpus(gres: str) -> tuple[str, int]:
    """Return the type and number of GPUs of `gpu:a100:2(IDX:0-1)`; without a type Slurm knows none."""
    parts = _GRES.findall(gres)
    kind = next((kind for kind, _ in parts if kind), "gpu" if parts else "")
    return kind.upper(), sum(int(count) for _, count in parts)


def expand_node_list(nodes: str) -> list[str]:
    """Return the names of a list as Slurm writes it, `n[1-2,07],gpu3`, in its order; empty for what is none."""
    names: list[str] = []
    for before, ranges, after in _PART.findall(nodes):
        for one in ranges.split(",") if ranges else [""]:
            first, _, last = one.partition("-")
            if not first:
                names.append(f"{before}{after}")
            elif int(last or first) - int(first) < MAX_NODES:
                numbers = range(int(first), int(last or first) + 1)
                names += (f"{before}{str(number).zfill(len(first))}{after}" for number in numbers)
        if len(names) > MAX_NODES:
            return []
    return names
