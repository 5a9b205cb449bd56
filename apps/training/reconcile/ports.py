"""Chooses the port of a task's next rendezvous. Attempts whose rank-0 nodes share a machine lease different ports;
where each has an address of its own, all of them use the requested port."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from django.conf import settings

from apps.clusters import leases
from apps.training.models import Task
from fermi.engines.base import Backend
from fermi.jobs.spec import JobSpec

MAX_CANDIDATES = 8
"""More than one, because other attempts may take some before this attempt does."""


@dataclass(frozen=True, slots=True)
class PortCandidates:
    """Ports that an attempt may lease. `machine`: None: the head node shares its ports with nobody; "": with every
    attempt of its cluster. `candidates`: ports that were free when checked; empty: all are taken. `busy`: parameters of
    the text MASTER_PORT_BUSY, if another program listens on the requested port."""

    cluster: str
    machine: str | None
    candidates: tuple[int, ...]
    busy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Return the name of the host that a port lease belongs to."""
        return f"{self.cluster}/{self.machine}"[:200]

    def lease_port(self, attempt: str) -> int:
        """Lease a port for the attempt and return it. Raises an error of `apps.clusters.leases` if none is free."""
        if self.machine is None:
            return self.candidates[0]
        return leases.acquire_port(self.host, self.candidates, attempt)

    def explained(self) -> dict[str, Any]:
        """Return the parameters of the text PORTS_TAKEN."""
        span = settings.MASTER_PORTS
        held = sum(port in span for port in leases.list_leased_ports(self.host))
        return {"machine": self.machine or None, "ports": f"{span.start}-{span.stop - 1}", "held": held}


def find_ports(task: Task, backend: Backend) -> PortCandidates:
    """Return the ports for the task's next attempt: first the requested one, then from the last attempt's port onwards,
    and never that port itself, on which leftovers may still listen. Asks the engine, so no transaction should be open.
    """
    job = JobSpec.from_json(task.spec)
    machine = backend.port_host(job)
    if machine is None:
        return PortCandidates(task.cluster_id, None, (job.master_port,))
    ports = PortCandidates(task.cluster_id, machine, ())
    last = task.attempts.order_by("-number").values_list("master_port", flat=True).first()
    leased = {*leases.list_leased_ports(ports.host), last}
    taken = leased | backend.ports_taken(job).keys()
    start, span = (last or job.master_port) + 1, settings.MASTER_PORTS
    tried = chain([job.master_port] if last is None else [], range(max(start, span.start), span.stop), span)
    free = (port for port in dict.fromkeys(tried) if port not in taken and backend.port_is_free(port))
    candidates, busy = tuple(islice(free, MAX_CANDIDATES)), {}
    if last is None and job.master_port not in {*leased, *candidates[:1]}:
        holder = backend.port_holder(job, job.master_port) or None
        busy = {"port": job.master_port, "node": job.head.name, "holder": holder}
    return PortCandidates(task.cluster_id, machine, candidates, busy)
