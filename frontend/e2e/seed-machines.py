"""`manage.py shell` reads this: a task of 14 ranks that failed four times, one of 512 ranks with a slow one, and a
worker, with all that was measured of them in the last hour; FERMI_SEED is how many tasks had the worker's node."""

import math
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from apps.accounts.models import Project, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.common.clock import now
from apps.scheduling.models import Usage
from apps.training.models import Attempt, MetricPoint, Node, Task
from apps.training.states import TaskState
from apps.workers.models import Report, Worker
from fermi.jobs import spec
from tests.series import measured

GIB = 2.0**30
MINUTE = timedelta(minutes=1)
MOMENT = now().replace(microsecond=0)
project, cluster = Project.objects.get(environments__pk="env-001"), Cluster.objects.get(environments__pk="env-001")
zone, owner = AvailabilityZone.objects.earliest("pk"), User.objects.filter(is_superuser=True).earliest("pk")


def environments(name: str, sizes: Sequence[int]) -> list[DevEnvironment]:
    return DevEnvironment.objects.bulk_create(
        DevEnvironment(
            pk=f"env-{name}-{number:02}", name=f"{name}-{number:02}", project=project, cluster=cluster, zone=zone,
            gpu_type="H100", gpu_count=gpus, cpu_cores=64, memory_gb=512, host=f"{name}-{number:02}",
            status=EnvironmentStatus.RUNNING, started_at=MOMENT - timedelta(days=9),
        )
        for number, gpus in enumerate(sizes)
    )  # fmt: skip


def trained(name: str, nodes: Sequence[DevEnvironment], attempts: Sequence[tuple[float, float, str]]) -> Task:
    """`attempts`: minutes ago of beginning and end, and how it ended."""
    ranks = sum(node.gpu_count for node in nodes)
    begins, ends = ago(attempts[0][0]), ago(attempts[-1][1])
    machines = tuple(spec.Node(node.pk, node.name, gpu_type="H100", gpu_count=node.gpu_count) for node in nodes)
    job = spec.JobSpec(f"task-{name}", "pytorch-ddp", machines, machines[0].id)
    task = Task.objects.create(
        id=job.task_id, name=name, project=project, owner=owner, cluster=cluster, framework="pytorch-ddp",
        node_count=len(nodes), total_gpus=ranks, world_size=ranks, master=nodes[0].pk,
        request={}, spec=job.to_json(), summary={},
        state=TaskState.STOPPED, state_since=ends, attempt=len(attempts), created_at=begins, started_at=begins,
        ended_at=ends, distributed=True,
    )  # fmt: skip
    for rank, node in enumerate(nodes):
        Node.objects.create(
            task=task, node_rank=rank, environment=node, name=node.name, zone=zone.name, processes=node.gpu_count
        )
        held(node, task.pk, task.name, begins, ends)
    for number, (since, until, outcome) in enumerate(attempts, 1):
        Attempt.objects.create(
            task=task, number=number, master_port=29500, plan={}, created_at=ago(since), running_at=ago(since),
            ended_at=ago(until), outcome=outcome, outcome_params={},
        )  # fmt: skip
    return task


def held(node: DevEnvironment, task: str, name: str, since: datetime, until: datetime) -> None:
    Usage.objects.create(
        task=task, task_name=name, kind="training", project=project, owner=owner.username, environment=node,
        environment_name=node.name, zone=zone.name, gpu_type="H100", gpus=node.gpu_count, since=since, until=until,
        training=(until - since).total_seconds(),
    )  # fmt: skip


def ago(minutes: float) -> datetime:
    return MOMENT - minutes * MINUTE


def wave(mean: float, swing: float, phase: float) -> Callable[[int], float]:
    return lambda at: max(0.0, mean + swing * math.sin(at / 5 + phase) + swing / 3 * math.sin(at * 1.7 + phase * 3))


def during(minutes: float, value: Callable[[int], float]) -> list[float]:
    return [value(at) for at in range(int(minutes * 4))]


def of_node(minutes: float, gpus: int, first: int, slow: int | None = None) -> dict[str, list[float]]:
    def told(mean: float, swing: float, rank: int) -> list[float]:
        return during(minutes, wave(mean * (0.35 if rank == slow else 1), swing, rank))

    return {
        **{f"gpu:{gpu}": [min(value, 100.0) for value in told(88, 8, first + gpu)] for gpu in range(gpus)},
        **{f"gpu_memory:{gpu}": told(61 * GIB, 2 * GIB, first + gpu) for gpu in range(gpus)},
        **{f"power:{gpu}": told(560, 60, first + gpu) for gpu in range(gpus)},
        **{f"temperature:{gpu}": told(62, 5, first + gpu) for gpu in range(gpus)},
        **{f"sm_clock:{gpu}": told(1700, 60, first + gpu) for gpu in range(gpus)},
        **{f"throttled:{gpu}": during(minutes, lambda at: 3 if at % 40 > 30 else 0) for gpu in range(gpus)},
        **{f"received:{name}": told(9e9, 2e9, first + at) for at, name in enumerate(("mlx5_0", "mlx5_1"))},
        **{f"sent:{name}": told(8e9, 2e9, first + at + 4) for at, name in enumerate(("mlx5_0", "mlx5_1"))},
        **{f"{way}:/data": told(3e8, 2e8, first + at) for at, way in enumerate(("disk_read", "disk_written"))},
        "cpu": told(38, 9, first),
        "memory": told(210 * GIB, 9 * GIB, first),
    }


few = environments("few", (2, 4, 8))
attempts = [(55, 34, "RANK_FAILED"), (28, 27, "RANK_FAILED"), (26.5, 26, "NODE_LOST"), (25.5, 3, "STOPPED")]
task = trained("fourteen", few, attempts)
first = 0
for node in few:
    for since, until, _ in attempts:
        measured(f"env:{node.pk}", ago(since).timestamp(), of_node(since - until, node.gpu_count, first))
    first += node.gpu_count
for since, until, _ in attempts:
    ranks = {f"rank_cpu:{rank}": during(since - until, wave(95, 20, rank)) for rank in range(14)}
    measured(f"task:{task.pk}", ago(since).timestamp(), ranks)
for attempt, since, steps, first in ((1, 54, 58, 0), (4, 25, 62, 520)):
    MetricPoint.objects.bulk_create(
        MetricPoint(
            task=task, attempt=attempt, rank=0, step=first + 10 * at, at=ago(since) + at * timedelta(seconds=20),
            values={"loss": 1.2 + 9 * math.exp(-(first + 10 * at) / 300) + 0.1 * math.sin(at)},
        )
        for at in range(steps)
    )  # fmt: skip

many = environments("many", [8] * 64)
wide = trained("wide", many, [(50, 2, "STOPPED")])
for place, node in enumerate(many):
    measured(f"env:{node.pk}", ago(50).timestamp(), of_node(48, 8, 8 * place, slow=300))
ranks = {f"rank_cpu:{rank}": during(48, wave(95, 20, rank)) for rank in range(512)}
measured(f"task:{wide.pk}", ago(50).timestamp(), ranks)

one = environments("worker", (8,))[0]
worker = Worker.objects.create(
    id="gn6-0", project=project, node="gn6", number=0, environment=one, gpu=0, machine="gn6", incarnation="x",
    digest="x", facts={"host": "gn6", "ip": "10.0.0.6"},
)  # fmt: skip
Report.objects.create(worker=worker, at=MOMENT)
for since, minutes in ((58, 25), (20, 19)):
    measured(f"env:{one.pk}", ago(since).timestamp(), of_node(minutes, 8, 0))
    its = {key: values for key, values in of_node(minutes, 1, 0).items() if key.endswith(":0")}
    measured(f"worker:{worker.pk}", ago(since).timestamp(), {**its, "rank_cpu:0": its["gpu:0"]})
for number in range(int(os.environ["FERMI_SEED"])):
    since = 58 - 6.5 * number
    task, name = ("task-wide", "wide") if number == 0 else (f"task-gone-{number}", f"bert-{number}")
    held(one, task, name, ago(since), ago(since - 5))
