"""Where attempts get their rendezvous ports: different ones on machines that they share, the same one where each head
has an address of its own."""

import os
import socket
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters import leases, selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease, PortLease
from apps.common.clock import now
from apps.common.texts import serialize_reason
from apps.training.core import task_store
from apps.training.models import Task
from apps.training.reconcile import actions
from apps.training.states import TaskState
from apps.workers.models import Report, Worker
from fermi.jobs.spec import Entrypoint, JobSpec

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PYTHON = {"python": "python3"}
CONNECTIONS: dict[str, dict[str, Any]] = {
    "local": {"warm": False},
    "kubernetes": {"kubeconfig": "/etc/fermi/lab.kubeconfig", **PYTHON},
    "kubernetes on the hosts' network": {"kubeconfig": "/etc/fermi/lab.kubeconfig", "pod": {"hostNetwork": True}},
    "slurm": PYTHON,
    "agent": {},
}


class Lab:
    """A cluster in which each task has an environment of its own; `machine` is where all of them are."""

    def __init__(self, user: User, backend: str, connection: dict[str, Any]) -> None:
        self.user = user
        self.project = Project.objects.create(name="p")
        self.zone = AvailabilityZone.objects.create(name="z")
        self.cluster = Cluster.objects.create(name="c", backend=backend, connection=connection)
        self.count = 0

    def task(self, machine: str = "gn5", **changes: Any) -> Task:
        number, self.count = self.count, self.count + 1
        name = f"env-{number}"
        environment = DevEnvironment.objects.create(
            id=name, name=name, project=self.project, cluster=self.cluster, zone=self.zone, host=machine, image="i:1",
            engine={"node": machine, "workers": [f"{machine}-{number}"], "gpus": [number]},
        )  # fmt: skip
        job = JobSpec(
            f"task-{number}", "pytorch-ddp", tuple(selectors.build_nodes([environment])), name,
            entrypoint=Entrypoint("train.py"), checkpoint_dir="/c", **changes,
        )  # fmt: skip
        task = Task.objects.create(
            id=job.task_id, project=self.project, owner=self.user, cluster=self.cluster, name=job.task_id,
            framework=job.framework, request={}, state=TaskState.QUEUED, state_since=now(), due_at=now(),
            created_at=now(), **task_store.build_job_columns(job),
        )  # fmt: skip
        task_store.store_nodes(task, job)
        return task

    def start_task(self, **changes: Any) -> Task:
        task = self.task(**changes)
        actions.lease_environments(task)
        return Task.objects.get(pk=task.pk)


@pytest.fixture(params=CONNECTIONS)
def lab(request: Any, user: User, settings: Any, tmp_path: Any) -> Lab:
    settings.DATA_DIR = tmp_path
    settings.MASTER_PORTS = range(29500, 32768)
    return Lab(user, request.param.partition(" ")[0], CONNECTIONS[request.param])


def occupy_ports(host: str, ports: Any) -> None:
    PortLease.objects.bulk_create(PortLease(host=host, port=port, holder=f"other-{port}") for port in ports)


def port_of(task: Task) -> int:
    return task.attempts.get().master_port


def test_five_hundred_tasks_start_on_one_cluster(lab: Lab) -> None:
    """Most of them are only the ports that they hold, where ports are held."""
    first = lab.start_task()
    assert first.state == TaskState.STARTING
    held = PortLease.objects.filter(holder=f"{first.pk}-1").first()
    if held:
        occupy_ports(held.host, range(held.port + 1, held.port + 480))
    begun = [lab.start_task() for _ in range(20)]
    assert [task.state for task in begun] == [TaskState.STARTING] * 20
    ports = {port_of(task) for task in begun}
    assert len(ports) == 20 if held else ports == {29500}
    assert PortLease.objects.count() == (500 if held else 0)


def test_the_last_port_is_used_and_then_the_reason_says_that_none_is_left(user: User, settings: Any) -> None:
    settings.MASTER_PORTS = range(29500, 29503)
    lab = Lab(user, "slurm", PYTHON)
    assert sorted(port_of(lab.start_task()) for _ in range(3)) == [29500, 29501, 29502]
    late = lab.start_task()
    assert (late.state, late.reason) == (TaskState.QUEUED, "PORTS_TAKEN")
    assert late.reason_params == {"machine": "gn5", "ports": "29500-29502", "held": 3}
    assert not Lease.objects.filter(holder=late.pk).exists(), "it holds no environment meanwhile"
    said = {lang: serialize_reason(late.reason, late.reason_params, lang) for lang in ("en", "zh")}
    assert all("29500-29502" in said[lang]["message"] and "FERMI_MASTER_PORTS" in said[lang]["hint"] for lang in said)
    assert port_of(lab.start_task(machine="gn6")) == 29500, "another machine has ports of its own"

    leases.release_ports("task-1-1")
    actions.lease_environments(late)
    late = Task.objects.get(pk=late.pk)
    assert (late.state, port_of(late)) == (TaskState.STARTING, 29501)


def busy(task: Task) -> list[dict[str, Any]]:
    return [event.params for event in task.events.filter(code="MASTER_PORT_BUSY")]


def test_a_port_of_another_program_is_named_with_its_holder_and_skipped(user: User) -> None:
    lab = Lab(user, "agent", {})
    worker = Worker.objects.create(pk="gn6-0", node="gn6", number=0, project=lab.project, machine="m")
    held = [{"port": 29500, "holder": "pid 7 (nc -l)"}, {"port": 29501, "holder": None}]
    Report.objects.create(worker=worker, usage={"ports": held})
    task = lab.start_task(machine="gn6")
    assert port_of(task) == 29502
    said = {"port": 29500, "node": "env-0", "holder": "pid 7 (nc -l)", "instead": 29502}
    assert busy(task) == [said]
    assert "(pid 7 (nc -l)): this attempt uses 29502" in serialize_reason("MASTER_PORT_BUSY", said, "en")["message"]
    other = lab.start_task(machine="gn6", master_port=29502)
    assert (port_of(other), busy(other)) == (29503, []), "another task of the platform is nobody to be warned of"


def test_a_port_of_another_program_on_this_machine_is_skipped(user: User, settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    lab = Lab(user, "local", {"warm": False})
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        task = lab.start_task(master_port=port)
    assert port_of(task) != port
    (said,) = busy(task)
    assert said["port"] == port
    assert said["holder"].startswith(f"pid {os.getpid()} (")


def test_a_lost_race_for_a_port_is_retried_at_once(user: User, monkeypatch: Any) -> None:
    lab = Lab(user, "slurm", PYTHON)
    task = lab.task()
    looked = actions.ports.find_ports

    def look(*args: Any) -> Any:
        """Others take all that was free, as soon as it has been looked at."""
        there = looked(*args)
        occupy_ports(there.host, there.candidates)
        return there

    with monkeypatch.context() as patched:
        patched.setattr(actions.ports, "find_ports", look)
        assert actions.lease_environments(task) == timedelta()
    task = Task.objects.get(pk=task.pk)
    assert (task.state, task.reason) == (TaskState.QUEUED, "")
    assert not Lease.objects.exclude(holder=task.pk).exists()
    assert actions.lease_environments(task) is None
    assert port_of(task) == 29508


def test_the_requested_port_comes_first_and_the_last_attempts_port_is_not_reused(user: User) -> None:
    lab = Lab(user, "slurm", PYTHON)
    task = lab.start_task(master_port=30000)
    assert port_of(task) == 30000
    leases.release_ports(f"{task.pk}-1")
    Task.objects.filter(pk=task.pk).update(state=TaskState.QUEUED)
    actions.lease_environments(Task.objects.get(pk=task.pk))
    assert task.attempts.get(number=2).master_port == 30001
