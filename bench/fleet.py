"""Rows of 1,000 nodes with 8 GPUs and 10,000 tasks, as in the middle of a week, for the operators' overview. Imported
inside Django; `make_fleet` fills the database, `cost` requests the overview."""

import random
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.test import Client

from apps.accounts.models import AuditEvent, Membership, Project, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus, Lease
from apps.common.clock import now
from apps.overview import hourly_use
from apps.overview.models import Hour
from apps.scheduling.models import Usage
from apps.telemetry import subjects
from apps.telemetry.writer import TelemetryWriter
from apps.training.models import Attempt, Node, Task
from apps.training.states import FINAL_STATES, TaskState
from bench.timing import measure_in_turns, measure_seconds
from fermi.scheduler.ledger import PART_NAMES

NODES = 1000
PROJECTS, ZONES, TYPES = 8, "ABCDEF", (("H100", 8), ("A100", 8), ("H200", 8), ("MI300X", 8))
ROUNDS = 5
WEEK = 7 * 86400
PLAN = {"artifacts": [{"kind": "file", "name": "launch.json", "content": "x" * 4000}]}


def make_fleet(seed: int = 1, nodes: int = NODES) -> None:
    """Create the nodes, and ten times as many tasks. Two of five nodes are held, some are out of service; one fails
    every other time."""
    rng, moment = random.Random(seed), now()
    people = [User.objects.create_user(f"person-{number}") for number in range(40)]
    projects = [Project.objects.create(name=f"project-{number}") for number in range(PROJECTS)]
    for number, person in enumerate(people):
        Membership.objects.create(project=projects[number % PROJECTS], user=person)
    cluster, _ = Cluster.objects.get_or_create(name="fleet", defaults={"backend": "local"})
    zones = [AvailabilityZone.objects.get_or_create(name=f"zone-{letter}")[0] for letter in ZONES]
    with transaction.atomic():
        machines = DevEnvironment.objects.bulk_create(
            _make_machine(rng, number, projects[number % PROJECTS], cluster, zones[number % len(zones)], moment)
            for number in range(nodes)
        )
        DevEnvironment.objects.update(created_at=moment - timedelta(days=40))
        AuditEvent.objects.bulk_create(
            AuditEvent(action="environment.change", target=one.pk, project=one.project, data={"cordoned": True})
            for one in machines
            if one.cordoned
        )
        kinds = [TaskState.SUCCEEDED] * 60 + [TaskState.FAILED] * 12 + [TaskState.STOPPED] * 8 + [TaskState.QUEUED] * 20
        tasks = [
            _make_task(
                rng,
                number,
                rng.choice(kinds) if number >= 2 * nodes // 5 else TaskState.RUNNING,
                projects,
                people,
                cluster,
                moment,
            )
            for number in range(10 * nodes)
        ]
        Task.objects.bulk_create(tasks)
        _make_runs(rng, tasks, machines, moment)
        _make_hours(rng, machines, moment)
    _make_measurements(rng, {task.pk for task in tasks if task.state == TaskState.RUNNING}, moment)


def _make_machine(
    rng: random.Random, number: int, project: Project, cluster: Cluster, zone: AvailabilityZone, moment: datetime
) -> DevEnvironment:
    gpu_type, gpus = TYPES[number % len(TYPES)]
    status = EnvironmentStatus.UNHEALTHY if number % 15 == 7 else EnvironmentStatus.RUNNING
    return DevEnvironment(
        pk=f"env-fleet-{number:04}", name=f"node-{number:04}", project=project, cluster=cluster, zone=zone,
        shared=number % 2 == 0, gpu_type=gpu_type, gpu_count=gpus, cpu_cores=128, memory_gb=2048, status=status,
        cordoned=number % 40 == 3, host=f"node-{number:04}", started_at=moment - timedelta(days=9), emulated=True,
    )  # fmt: skip


def _make_task(
    rng: random.Random,
    number: int,
    state: TaskState,
    projects: list[Project],
    people: list[User],
    cluster: Cluster,
    moment: datetime,
) -> Task:
    person = rng.randrange(len(people))
    nodes = 1 if state is TaskState.RUNNING else rng.choice((1, 1, 1, 2, 4))
    since = moment - timedelta(seconds=rng.uniform(60, WEEK if state in FINAL_STATES else 6 * 3600))
    waits = [
        ("WAITING_FOR_CAPACITY", {"wanted": "8 × H100", "free": "2"}),
        ("WAITING_FOR_TURN", {"ahead": "somebody"}),
        ("", {}),
    ]
    ends: tuple[str, dict[str, str]] = ("RUN_TIMEOUT" if state is TaskState.FAILED else "", {})
    reason, params = rng.choice(waits) if state is TaskState.QUEUED else ends
    return Task(
        id=f"task-fleet-{number:05}",
        name=f"gpt-{number:05}",
        project=projects[person % PROJECTS],
        owner=people[person],
        cluster=cluster,
        framework="pytorch-ddp",
        node_count=nodes,
        total_gpus=8 * nodes,
        world_size=8 * nodes,
        master="env-fleet-0000",
        request={"x": "y" * 1000},
        spec={"x": "y" * 2000},
        summary={},
        state=state,
        state_since=since,
        reason=reason,
        reason_params=params,
        attempt=1,
        created_at=since - timedelta(hours=1),
        due_at=None if state in FINAL_STATES else moment + timedelta(days=1),
        ended_at=since if state in FINAL_STATES else None,
    )


def _make_runs(rng: random.Random, tasks: list[Task], machines: list[DevEnvironment], moment: datetime) -> None:
    nodes, attempts, leases, usage = [], [], [], []
    free = [machine for machine in machines if machine.status == EnvironmentStatus.RUNNING]
    for task in tasks:
        if task.state == TaskState.QUEUED:
            continue
        there = [free.pop()] if task.state == TaskState.RUNNING else rng.sample(machines, task.node_count)
        bad = next((one for one in there if rng.random() < (0.5 if one is machines[-7] else 0.002)), None)
        begins, ends = task.created_at, task.ended_at
        attempts.append(
            Attempt(
                task=task, number=1, master_port=29500, plan=PLAN, created_at=begins, running_at=begins, ended_at=ends,
                outcome=("NODE_LOST" if bad else "COMPLETED") if ends else "",
                outcome_params={"node": bad.name, "evidence": "no sign of life"} if bad else {},
            )
        )  # fmt: skip
        for rank, machine in enumerate(there):
            nodes.append(
                Node(task=task, node_rank=rank, environment=machine, name=machine.name, zone="z", processes=8)
            )  # fmt: skip
            if not ends:
                leases.append(Lease(environment=machine, holder=task.pk, since=begins))
                continue
            held = (ends - begins).total_seconds()
            shares = dict(zip(PART_NAMES, _draw_shares(rng), strict=True))
            usage.append(
                Usage(
                    task=task.pk, task_name=task.name, kind="training", project=task.project,
                    owner=task.owner.username, environment=machine, environment_name=machine.name,
                    zone=machine.zone.name, gpu_type=machine.gpu_type, gpus=machine.gpu_count, since=begins,
                    until=ends, **{name: share * held for name, share in shares.items()},
                )
            )  # fmt: skip
    Node.objects.bulk_create(nodes)
    Attempt.objects.bulk_create(attempts)
    Lease.objects.bulk_create(leases)
    Usage.objects.bulk_create(usage)


def _draw_shares(rng: random.Random) -> list[float]:
    parts = [rng.uniform(0, weight) for weight in (0.04, 1.5, 0.01, 0.06, 0.04, 0.02, 0.02)]
    return [part / sum(parts) for part in parts]


def _make_hours(rng: random.Random, machines: list[DevEnvironment], moment: datetime) -> None:
    """Create a month of the rows that `hours.book` writes."""
    sizes: dict[Any, int] = {}
    for one in machines:
        key = (one.project, one.shared, one.zone.name, one.gpu_type)
        sizes[key] = sizes.get(key, 0) + one.gpu_count
    running = moment.replace(minute=0, second=0, microsecond=0)
    Hour.objects.bulk_create(
        Hour(
            begins=running - timedelta(hours=ago), project=project, shared=shared, zone=zone, gpu_type=gpu_type,
            there=size, held=size * held, measured=size * held, used=size * held * rng.uniform(0.6, 0.9),
        )
        for ago in range(1, 24 * 31)
        for held in [0.75 + 0.15 * ((ago // 12) % 2)]
        for (project, shared, zone, gpu_type), size in sizes.items()
    )  # fmt: skip


def _make_measurements(rng: random.Random, running: set[str], moment: datetime) -> None:
    """Create the telemetry of the last twelve minutes of nodes that are held; one in ten did nothing."""
    at = [moment.timestamp() - 720]
    writer = TelemetryWriter(lambda: at[0])
    held = Lease.objects.filter(holder__in=running).values_list("environment", flat=True)
    busy = {key: rng.choice((0.3, *[rng.uniform(40, 98)] * 9)) for key in held}
    while at[0] <= moment.timestamp():
        for key, mean in busy.items():
            values = {f"gpu:{gpu}": min(mean * rng.uniform(0.9, 1.1), 100.0) for gpu in range(8)}
            writer.put(subjects.make_environment_subject(key), at[0], {**values, "cpu": 40.0, "memory": 9e11})
        at[0] += 15
    at[0] += 60
    while writer.flush():
        pass


def measure_cost() -> dict[str, float]:
    user = User.objects.filter(is_superuser=True).earliest("pk")
    client = Client(headers={"Host": "localhost"})
    client.force_login(user)

    def get(path: str) -> float:
        return measure_seconds(lambda: client.get(f"/api/v1{path}"))

    paths = {"overview": "/overview", "attention": "/overview/attention", "last": "/overview/attention?page=40"}
    for path in paths.values():
        assert client.get(f"/api/v1{path}").status_code == 200
    found = measure_in_turns(ROUNDS, **{name: lambda path=path: get(path) for name, path in paths.items()})
    return {**found, "book": measure_seconds(lambda: hourly_use.book_hours(now()))}
