"""Which port a task's next rendezvous gets. Attempts whose heads share a machine lease different ones; where each head
has an address of its own, all of them use the port that was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from django.conf import settings

from apps.clusters import leases
from apps.training.models import Task
from fermi.engines.base import Backend
from fermi.jobs.spec import JobSpec

CANDIDATES = 8
"""More than one, because others may take some before this attempt does."""


@dataclass(frozen=True, slots=True)
class Ports:
    """`machine`: None = the head shares its ports with nobody; "" = with every attempt of its cluster. `candidates`:
    free when they were looked at; none = all are taken. `busy`: what the text of MASTER_PORT_BUSY takes, where another
    program than training listens on the port that the task asks for."""

    cluster: str
    machine: str | None
    candidates: tuple[int, ...]
    busy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """What a lease is on."""
        return f"{self.cluster}/{self.machine}"[:200]

    def take(self, attempt: str) -> int:
        """Raises `leases.NoFreePort`."""
        if self.machine is None:
            return self.candidates[0]
        return leases.take_port(self.host, self.candidates, attempt)

    def explained(self) -> dict[str, Any]:
        """What the text of PORTS_TAKEN takes."""
        span = settings.MASTER_PORTS
        held = sum(port in span for port in leases.ports(self.host))
        return {"machine": self.machine or None, "ports": f"{span.start}-{span.stop - 1}", "held": held}


def look(task: Task, backend: Backend) -> Ports:
    """The task's own wish first, then from the last attempt's port onwards, and never that one itself: what is left of
    it may still listen there. Asks the engine, so no transaction should be open."""
    job = JobSpec.from_json(task.spec)
    machine = backend.port_host(job)
    if machine is None:
        return Ports(task.cluster_id, None, (job.master_port,))
    ports = Ports(task.cluster_id, machine, ())
    last = task.attempts.order_by("-number").values_list("master_port", flat=True).first()
    leased = {*leases.ports(ports.host), last}
    taken = leased | backend.ports_taken(job).keys()
    start, span = (last or job.master_port) + 1, settings.MASTER_PORTS
    tried = chain([job.master_port] if last is None else [], range(max(start, span.start), span.stop), span)
    free = (port for port in dict.fromkeys(tried) if port not in taken and backend.port_is_free(port))
    candidates, busy = tuple(islice(free, CANDIDATES)), {}
    if last is None and job.master_port not in {*leased, *candidates[:1]}:
        holder = backend.port_holder(job, job.master_port) or None
        busy = {"port": job.master_port, "node": job.head.name, "holder": holder}
    return Ports(task.cluster_id, machine, candidates, busy)
