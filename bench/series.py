"""Series of 1,000 nodes, written as the watcher writes them but on a faster clock: what is counted is processor time.
Imported inside Django."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import numpy as np
from django.test import Client

from apps.accounts.models import Project, User
from apps.catalog.models import DatasetVersion, Model
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.telemetry import block_store, rollups, subjects
from apps.telemetry.block_codec import ColumnBlock, fold_rows, pack_block
from apps.telemetry.models import Block
from apps.telemetry.resolutions import COARSE, FINE, RESOLUTIONS, Resolution
from apps.telemetry.writer import TelemetryWriter
from apps.training.models import Attempt, Node, Task
from apps.training.states import TaskState
from bench import procfs
from bench.procfs import list_children, read_command, read_cpu_seconds, read_memory
from bench.timing import measure_in_turns, measure_seconds
from fermi.telemetry.metrics import DISK, GPU, METRICS, NETWORK, RANK, build_key
from server import metrics

NODES, GPUS, WEEK = 1000, 8, 7 * 86_400
RANKS_OF_A_TASK = 64
NODES_OF_A_TASK = RANKS_OF_A_TASK // GPUS
INDEXES: Mapping[str, tuple[object, ...]] = {
    GPU: tuple(range(GPUS)), NETWORK: ("eth0", "mlx5_0"), DISK: ("/", "/data"), RANK: tuple(range(GPUS)),
}  # fmt: skip
KEYS = [build_key(name, index) for name, metric in METRICS.items() for index in INDEXES.get(metric.subject, ("",))]
_RANK = [name for name, metric in METRICS.items() if metric.subject == RANK]
OF_NODES = [name for name in KEYS if name.partition(":")[0] not in _RANK]
OF_RANKS = [
    [build_key(name, node * GPUS + rank) for name in _RANK for rank in range(GPUS)] for node in range(NODES_OF_A_TASK)
]
_LIKE = {name: KEYS.index(name) for name in OF_NODES} | {
    build_key(name, rank): KEYS.index(build_key(name, rank % GPUS)) for name in _RANK for rank in range(RANKS_OF_A_TASK)
}
HOURS = 3
"""Ago. The middle of a block is measured."""
WARM_UP = 60
FOLDED_GRAINS = NODES // 4 // NODES_OF_A_TASK * NODES_OF_A_TASK
"""Of the nodes: each block is folded by itself, and takes as long as any other."""
NODES_PER_TASK = ("gpu", "gpu_memory", "power", "temperature", "sm_clock", "received", "rank_cpu", "rank_memory")


class _RandomMachines:
    """Values that wander as real ones do: between limits, from where they were before."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        scale = np.array([_read_scale(name) for name in KEYS])
        walk = np.cumsum(rng.normal(0, 0.03, (4 * FINE.values, len(KEYS))), axis=0)
        self._table = np.round((0.5 + 0.4 * np.sin(walk)) * scale, 1)
        self.period = len(self._table)
        self._table[:, [name.partition(":")[0].endswith("_total") for name in KEYS]] = 80 * 2.0**30

    def at(self, names: Sequence[str], node: int, slot: int) -> dict[str, float]:
        row = self._table[(slot + 7 * node) % len(self._table)].tolist()
        return {name: row[_LIKE[name]] for name in names}

    def block(self, names: Sequence[str], node: int, begins: int, grain: Resolution, known: int) -> ColumnBlock:
        """With so many values known of each."""
        values = ColumnBlock(grain.values)
        for name in names:
            told = np.full(grain.values, np.nan, np.float32)
            told[:known] = np.resize(np.roll(self._table[:, _LIKE[name]], -(begins // grain.seconds + 7 * node)), known)
            values.columns.update(fold_rows(name, told[:, None]) if grain in COARSE else {name: told})
        return values


def _read_scale(name: str) -> float:
    unit = METRICS[name.partition(":")[0]].unit
    return {"%": 100.0, "B": 8e10, "B/s": 1e9, "W": 700.0, "MHz": 1980.0, "°C": 80.0}.get(unit, 4.0)


def measure_cost(span: int) -> dict[str, Any]:
    machines, began = _RandomMachines(), FINE.find_block_start(time.time()) - HOURS * 3600
    moment = float(began + FINE.block // 2 - WARM_UP)
    writer = TelemetryWriter(lambda: moment)

    def seconds_of(until: float) -> float:
        """One by one, each node in its own of every fifteen; the writer's processor time."""
        nonlocal moment
        spent = 0.0
        while moment < until:
            told = [
                (subject, machines.at(names, node, int(moment) // FINE.seconds))
                for node in range(int(moment) % FINE.seconds, NODES, FINE.seconds)
                for subject, names in (_make_node_values(node), _make_rank_values(node))
            ]
            before = time.process_time()
            for subject, values in told:
                writer.put(subject, moment, values)
            writer.flush()
            spent += time.process_time() - before
            moment += 1
        return spent

    def fill(known: int, nodes: int) -> list[str]:
        """Their blocks, at once; the subjects of these."""
        filled = []
        for node in range(nodes):
            for subject, names in (
                _make_node_values(node),
                *([_make_task(node)] if node % NODES_OF_A_TASK == 0 else []),
            ):
                there = Block.objects.filter(subject=subject).values_list("version", flat=True).first() or 0
                block_store.save_block(FINE, subject, began, machines.block(names, node, began, FINE, known), there)
                filled.append(subject)
        return filled

    resident = read_memory([os.getpid()]).resident
    fill(FINE.values // 2 - WARM_UP // FINE.seconds, NODES)
    seconds_of(moment + WARM_UP)
    server = postgres_seconds()
    writing = seconds_of(moment + span) / span
    serving = (postgres_seconds() - server) / span
    grown = read_memory([os.getpid()]).resident - resident
    Block.objects.exclude(subject__in=fill(FINE.values, FOLDED_GRAINS)).update(sealed=True)
    started, server = time.process_time(), postgres_seconds()
    while rollups.fold_blocks():
        pass
    folded = (time.process_time() - started + postgres_seconds() - server) / FINE.block * NODES / FOLDED_GRAINS
    sizes = {grain: _measure_block(machines, grain) for grain in RESOLUTIONS}
    read = _measure_reading(_store_week(machines), _store_present(machines)) | _measure_scrape(machines)
    return {
        "series": NODES * len(KEYS), "values": NODES * len(KEYS) / FINE.seconds, "writer": writing, "postgres": serving,
        "folding": folded, "memory": grown, "day": sizes[FINE] * 86_400 / FINE.block,
        "plain": 4 * len(KEYS) * 86_400 / FINE.seconds,
        "ever": sum(sizes[grain] * grain.kept / grain.block for grain in RESOLUTIONS), **read,
    }  # fmt: skip


def _make_node_values(node: int) -> tuple[str, Sequence[str]]:
    return subjects.make_environment_subject(f"bench-{node:04}"), OF_NODES


def _make_rank_values(node: int) -> tuple[str, Sequence[str]]:
    """Return the values of one node's ranks, as its runner reports them."""
    task, place = divmod(node, NODES_OF_A_TASK)
    return subjects.make_task_subject(f"bench-{task:04}"), OF_RANKS[place]


def _make_task(node: int) -> tuple[str, Sequence[str]]:
    return _make_rank_values(node)[0], [name for names in OF_RANKS for name in names]


def _measure_block(machines: _RandomMachines, grain: Resolution) -> int:
    """Return the bytes of a whole block, for a node and its ranks."""
    return sum(len(pack_block(machines.block(names, 0, 0, grain, grain.values))) for names in (OF_NODES, OF_RANKS[0]))


def postgres_seconds() -> float:
    """Return the processor seconds of PostgreSQL's processes, both running and ended ones."""
    mother = next(pid for pid in list_children(int(os.environ["BENCH_POSTGRES"])) if "postgres" in read_command(pid))
    while True:
        with suppress(FileNotFoundError):  # one has just ended
            living = read_cpu_seconds([mother, *list_children(mother)])
            with open(f"/proc/{mother}/stat", "rb") as file:
                ended = sum(map(int, file.read().rpartition(b")")[2].split()[13:15])) / procfs.TICKS
            return living + ended


def _store_week(machines: _RandomMachines) -> Task:
    """Store the series of one task that ran for a week on eight nodes, as writing and downsampling would have left
    them."""
    moment = now()
    task = _make_running("week", NODES_OF_A_TASK, moment - timedelta(seconds=WEEK))
    for node in range(NODES_OF_A_TASK):
        _store_blocks(
            subjects.make_environment_subject(f"env-week-{node}"), OF_NODES, machines, node, moment.timestamp()
        )
    _store_blocks(subjects.make_task_subject(task.pk), _make_task(0)[1], machines, 0, moment.timestamp())
    return task


def _store_present(machines: _RandomMachines) -> Task:
    """Store the present values of one task of 512 ranks."""
    task = _make_running("wide", 512 // GPUS, now() - timedelta(minutes=1))
    writer, moment = TelemetryWriter(), time.time()
    for node in range(512 // GPUS):
        writer.put(subjects.make_environment_subject(f"env-wide-{node}"), moment, machines.at(OF_NODES, node, 0))
        ranks = {build_key(name, node * GPUS + gpu): 50.0 for name in _RANK for gpu in range(GPUS)}
        writer.put(subjects.make_task_subject(task.pk), moment, ranks)
    writer.flush(all_of_it=True)
    return task


def _measure_scrape(machines: _RandomMachines) -> dict[str, float]:
    """Measure `/metrics` with all nodes measured just now; one in a hundred has memory errors."""
    project, cluster, zone = Project.objects.get(), Cluster.objects.get(), DevEnvironment.objects.all()[0].zone
    DevEnvironment.objects.bulk_create(
        DevEnvironment(
            pk=_make_node_values(node)[0].removeprefix("env:"), name=f"bench-{node:04}", project=project,
            cluster=cluster, zone=zone, gpu_type="H100", gpu_count=GPUS, cpu_cores=64, memory_gb=512,
        )
        for node in range(NODES)
    )  # fmt: skip
    writer, moment = TelemetryWriter(), time.time()
    healthy = {build_key("ecc", gpu): 0.0 for gpu in range(GPUS)}
    for node in range(NODES):
        values = machines.at(OF_NODES, node, 0)
        writer.put(_make_node_values(node)[0], moment, values | healthy if node % 100 else values)
    writer.flush(all_of_it=True)
    assert metrics.render_metrics().count(b"fermi_gpu_power_watts{") >= NODES * GPUS
    began, server = time.process_time(), postgres_seconds()
    said = [metrics.render_metrics() for _ in range(3)]
    return {
        "scrape": (time.process_time() - began) / len(said),
        "scrape_postgres": (postgres_seconds() - server) / len(said),
        "scraped": len(said[-1]),
    }


def _make_running(name: str, nodes: int, begins: datetime) -> Task:
    project, cluster, ranks = Project.objects.get(), Cluster.objects.get(), nodes * GPUS
    zone = DevEnvironment.objects.all()[0].zone
    task = Task.objects.create(
        id=f"task-{name}", project=project, owner=User.objects.get(), cluster=cluster, name=name,
        framework="pytorch-ddp", dataset_version=DatasetVersion.objects.get(), model=Model.objects.get(),
        node_count=nodes, total_gpus=ranks, world_size=ranks, master=f"env-{name}-0", request={}, spec={}, summary={},
        state=TaskState.RUNNING, state_since=begins, attempt=1, due_at=begins, created_at=begins, started_at=begins,
    )  # fmt: skip
    Attempt.objects.create(task=task, number=1, master_port=1, plan={}, created_at=begins, running_at=begins)
    for node in range(nodes):
        environment = DevEnvironment.objects.create(
            pk=f"env-{name}-{node}", name=f"{name}-{node}", project=project, cluster=cluster, zone=zone,
            gpu_type="H100", gpu_count=GPUS, cpu_cores=64, memory_gb=512,
        )  # fmt: skip
        Node.objects.create(task=task, node_rank=node, environment=environment, name=environment.name, processes=GPUS)
        Lease.objects.create(environment=environment, holder=task.pk, since=begins)
    return task


def _store_blocks(subject: str, names: Sequence[str], machines: _RandomMachines, node: int, moment: float) -> None:
    @cache
    def packed(grain: Resolution, begins: int, known: int) -> bytes:
        return pack_block(machines.block(names, node, begins, grain, known))

    for grain in RESOLUTIONS:
        for begins in range(grain.find_block_start(moment - min(grain.kept, WEEK)), int(moment), grain.block):
            known = min(grain.values, int(moment - begins) // grain.seconds)
            sealed = grain is FINE and begins + grain.block < moment - 2400
            data = packed(grain, begins % (grain.seconds * machines.period), known)
            Block.objects.create(
                subject=subject, grain=grain.seconds, begins=begins, data=data, version=1, sealed=sealed
            )


def _measure_reading(week: Task, present: Task) -> dict[str, float]:
    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get())
    hour = (now() - timedelta(hours=1)).isoformat()

    def send_query(task: Task, expected: int, rest: str = "", **query: Any) -> None:
        answer = client.get(f"/api/v1/training-tasks/{task.pk}/telemetry{rest}", query)
        found = answer.json()["data"]
        count = len(found["ranks" if rest else "series"])
        if count != expected:
            raise RuntimeError(f"{count} of {expected}")

    wide = sum(NODES_OF_A_TASK * len(INDEXES[METRICS[name].subject]) for name in NODES_PER_TASK)
    return measure_in_turns(
        5,
        chart=partial(measure_seconds, partial(send_query, week, 64, metric="gpu")),
        metrics=partial(measure_seconds, partial(send_query, week, wide, metric=NODES_PER_TASK)),
        hour=partial(measure_seconds, partial(send_query, week, 64, metric="gpu", **{"from": hour})),
        newest=partial(measure_seconds, partial(send_query, present, 512, "/now")),
    )
