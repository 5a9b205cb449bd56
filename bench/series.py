"""Series of 1,000 nodes, written as the watcher writes them, but in a time that passes faster: what is counted is
processor time. Imported inside Django."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import Avg
from django.db.models.functions import Length
from django.test import Client

from apps.accounts.models import Project, User
from apps.catalog.models import DatasetVersion, Model
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.telemetry import folding, storing
from apps.telemetry.grains import COARSE, FINE, GRAINS, LATE, Grain
from apps.telemetry.models import Block
from apps.telemetry.packing import Values, fold
from apps.telemetry.writing import Writer
from apps.training.models import Attempt, Node, Task
from apps.training.states import State
from bench import procfs
from bench.procfs import children, command, cpu_seconds, memory
from bench.timing import in_turns, seconds
from fermi.telemetry.metrics import DISK, GPU, METRICS, NETWORK, RANK, key

NODES, GPUS, WEEK = 1000, 8, 7 * 86_400
RANKS_OF_A_TASK = 64
INDEXES: Mapping[str, tuple[object, ...]] = {
    GPU: tuple(range(GPUS)), NETWORK: ("eth0", "mlx5_0"), DISK: ("/", "/data"), RANK: tuple(range(GPUS)),
}  # fmt: skip
KEYS = [key(name, index) for name, metric in METRICS.items() for index in INDEXES.get(metric.of, ("",))]
OF_RANKS = {name for name, metric in METRICS.items() if metric.of == RANK}
HOURS = 3
"""Before the middle of a block: the moment from which it is measured."""
EIGHT = ("gpu", "gpu_memory", "power", "temperature", "sm_clock", "received", "rank_cpu", "rank_memory")


class _Machines:
    """Values that wander as real ones do: between limits, from where they were before."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        scale = np.array([_scale(name) for name in KEYS])
        walk = np.cumsum(rng.normal(0, 0.03, (4 * FINE.values, len(KEYS))), axis=0)
        self._table = np.round((0.5 + 0.4 * np.sin(walk)) * scale, 1)
        self._constant = {name for name in KEYS if name.partition(":")[0].endswith("_total")}

    def at(self, node: int, slot: int) -> dict[str, float]:
        row = self._table[(slot + 7 * node) % len(self._table)].tolist()
        return dict(zip(KEYS, row, strict=True)) | dict.fromkeys(self._constant, 85899345920.0)


def _scale(name: str) -> float:
    unit = METRICS[name.partition(":")[0]].unit
    return {"%": 100.0, "B": 8e10, "B/s": 1e9, "W": 700.0, "MHz": 1980.0, "°C": 80.0}.get(unit, 4.0)


def cost(span: int) -> dict[str, Any]:
    machines = _Machines()
    began = FINE.begin(time.time()) - HOURS * 3600
    moment = float(began)
    writer = Writer(lambda: moment)

    def put(at: float, node: int) -> None:
        values = machines.at(node, int(at) // FINE.seconds)
        own = {name: value for name, value in values.items() if name.partition(":")[0] not in OF_RANKS}
        ranks = {name: value for name, value in values.items() if name.partition(":")[0] in OF_RANKS}
        due.append((f"env:bench-{node:04}", own))
        first = node * GPUS % RANKS_OF_A_TASK
        shifted = {f"{(parts := name.split(':'))[0]}:{first + int(parts[1])}": value for name, value in ranks.items()}
        due.append((f"task:bench-{node * GPUS // RANKS_OF_A_TASK:04}", shifted))

    due: list[tuple[str, dict[str, float]]] = []

    def minutes(until: float) -> float:
        """Second by second, each node in its own; the writer's processor time."""
        nonlocal moment
        spent = 0.0
        while moment < until:
            due.clear()
            for node in range(int(moment) % FINE.seconds, NODES, FINE.seconds):
                put(moment, node)
            before = time.process_time()
            for subject, values in due:
                writer.put(subject, moment, values)
            writer.flush()
            spent += time.process_time() - before
            moment += 1
        return spent

    before = memory([os.getpid()]).resident
    half = began + FINE.block // 2
    minutes(half)
    server = _server()
    writing = minutes(half + span) / span
    serving = (_server() - server) / span
    grown = memory([os.getpid()]).resident - before
    minutes(began + FINE.block)
    moment += LATE
    while writer.flush():
        moment += 60
    series = sum(len(block.values.columns) for block in storing.load(FINE, _subjects(), began, began + 1))
    started, server = time.process_time(), _server()
    while folding.fold():
        pass
    folded = (time.process_time() - started + _server() - server) / FINE.block
    sizes = {grain: _size(grain, share) for grain, share in zip(GRAINS, (1, 8, 96), strict=True)}
    task = _week(machines)
    return {
        "series": series, "values": NODES * len(KEYS) / FINE.seconds, "writer": writing, "postgres": serving,
        "folding": folded, "memory": grown, "day": sizes[FINE] * 86_400 / FINE.block,
        "plain": 4 * len(KEYS) * 86_400 / FINE.seconds,
        "ever": sum(sizes[grain] * grain.kept / grain.block for grain in GRAINS), **_reading(task),
    }  # fmt: skip


def _subjects() -> list[str]:
    return list(Block.objects.filter(grain=FINE.seconds).values_list("subject", flat=True).distinct())


def _size(grain: Grain, share: int) -> float:
    """Bytes of a whole block for one node and its ranks, where `share` fine ones make one."""
    rows = Block.objects.filter(grain=grain.seconds)
    per_node = (rows.filter(subject__startswith=kind) for kind in ("env:", "task:"))
    env, task = (some.aggregate(size=Avg(Length("data")))["size"] or 0.0 for some in per_node)
    return float(env + task / (RANKS_OF_A_TASK / GPUS)) * share


def _server() -> float:
    """Processor seconds of PostgreSQL: of those that live, and of those that ended."""
    mother = next(pid for pid in children(int(os.environ["BENCH_POSTGRES"])) if "postgres" in command(pid))
    while True:
        with suppress(FileNotFoundError):  # one has just ended
            living = cpu_seconds([mother, *children(mother)])
            with open(f"/proc/{mother}/stat", "rb") as file:
                ended = sum(map(int, file.read().rpartition(b")")[2].split()[13:15])) / procfs.TICKS
            return living + ended


def _week(machines: _Machines) -> Task:
    """Of one task on eight nodes that has run for a week: what writing and folding would have left."""
    moment = now()
    nodes = RANKS_OF_A_TASK // GPUS
    project, cluster = Project.objects.get(), Cluster.objects.get()
    zone = DevEnvironment.objects.all()[0].zone
    begins = moment - timedelta(seconds=WEEK)
    task = Task.objects.create(
        id="task-week", project=project, owner=User.objects.get(), cluster=cluster, name="week",
        framework="pytorch-ddp", dataset_version=DatasetVersion.objects.get(), model=Model.objects.get(),
        node_count=nodes, total_gpus=64, world_size=64, master="env-week-0", request={}, spec={}, summary={},
        state=State.RUNNING, state_since=moment, attempt=1, due_at=moment, created_at=begins, started_at=begins,
    )  # fmt: skip
    Attempt.objects.create(task=task, number=1, master_port=1, plan={}, created_at=begins, running_at=begins)
    for node in range(nodes):
        environment = DevEnvironment.objects.create(
            pk=f"env-week-{node}", name=f"week-{node}", project=project, cluster=cluster, zone=zone, gpu_type="H100",
            gpu_count=GPUS, cpu_cores=64, memory_gb=512,
        )  # fmt: skip
        Node.objects.create(task=task, node_rank=node, environment=environment, name=environment.name, processes=GPUS)
        Lease.objects.create(environment=environment, holder=task.pk, since=begins)
        _kept(f"env:{environment.pk}", machines, node, moment.timestamp())
    _kept(f"task:{task.pk}", machines, 0, moment.timestamp(), ranks=RANKS_OF_A_TASK)
    return task


def _kept(subject: str, machines: _Machines, node: int, moment: float, ranks: int = 0) -> None:
    names = [f"{name}:{rank}" for name in sorted(OF_RANKS) for rank in range(ranks)] if ranks else [
        name for name in KEYS if name.partition(":")[0] not in OF_RANKS
    ]  # fmt: skip
    columns = {name: KEYS.index(_like(name)) for name in names}
    table = machines._table
    for grain in GRAINS:
        begin = grain.begin(moment - min(grain.kept, WEEK))
        while begin < moment:
            count = min(grain.values, max(0, int(moment - begin) // grain.seconds))
            values = Values(grain.values)
            for name, column in columns.items():
                told = np.full(grain.values, np.nan, np.float32)
                told[:count] = np.resize(np.roll(table[:, column], begin // grain.block + 7 * node), count)
                values.columns.update(fold(name, told[:, None]) if grain in COARSE else {name: told})
            sealed = grain is FINE and begin + grain.block < moment - 2400
            data = storing.pack(values)
            Block.objects.create(
                subject=subject, grain=grain.seconds, begins=begin, data=data, version=1, sealed=sealed
            )
            begin += grain.block


def _like(name: str) -> str:
    """A rank's key on its node."""
    metric, _, index = name.partition(":")
    return f"{metric}:{int(index) % GPUS}" if metric in OF_RANKS else name


def _reading(task: Task) -> dict[str, float]:
    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get())
    path = f"/api/v1/training-tasks/{task.pk}/telemetry"
    hour = (now() - timedelta(hours=1)).isoformat()

    def ask(expected: int, **query: Any) -> None:
        answer = client.get(path, query)
        found = answer.json()["data"]["series"]
        assert answer.status_code == 200
        assert len(found) == expected, f"{len(found)} series"

    nodes = RANKS_OF_A_TASK // GPUS
    wide = sum(nodes * len(INDEXES[METRICS[name].of]) for name in EIGHT)
    writer = Writer()
    writer.put(f"task:{task.pk}", time.time(), {f"rank_cpu:{rank}": 99.0 for rank in range(512)})
    for node in range(nodes):
        gpus = {f"{name}:{gpu}": 99.0 for name in EIGHT[:4] for gpu in range(GPUS)}
        writer.put(f"env:env-week-{node}", time.time(), gpus)
    writer._clock = lambda: time.time() + 60
    writer.flush()
    connection.ensure_connection()
    return in_turns(
        5,
        chart=partial(seconds, lambda: ask(64, metric="gpu")),
        metrics=partial(seconds, lambda: ask(wide, metric=EIGHT)),
        hour=partial(seconds, lambda: ask(64, metric="gpu", **{"from": hour})),
        newest=partial(seconds, lambda: client.get(f"{path}/now")),
    )
