"""`manage.py shell` reads this: an inventory of FERMI_SEED further environments, a tenth of them stopped."""

import os
from datetime import timedelta

from apps.accounts.models import Project
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentKind, EnvironmentStatus
from apps.common.clock import now

project, cluster = Project.objects.get(environments__pk="env-001"), Cluster.objects.get(environments__pk="env-001")
zones = [AvailabilityZone.objects.get_or_create(name=f"测试可用区{letter}")[0] for letter in "ABCDEFGH"]
types = [("A100", 8), ("H100", 8), ("V100", 4), ("", 0)]
kinds = list(EnvironmentKind)


def environment(number: int) -> DevEnvironment:
    gpu_type, gpus = types[number % len(types)]
    return DevEnvironment(
        pk=f"env-seed-{number:05}",
        name=f"node-{number:05}",
        project=project,
        cluster=cluster,
        zone=zones[number % len(zones)],
        kind=kinds[number % len(kinds)],
        status=EnvironmentStatus.STOPPED if number % 10 == 9 else EnvironmentStatus.RUNNING,
        stack=("pytorch", "transformers", "jax")[number % 3],
        gpu_type=gpu_type,
        gpu_count=gpus,
        emulated=True,
        cpu_cores=64,
        memory_gb=512,
        host=f"node-{number:05}",
        ip=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        started_at=now() - timedelta(minutes=number),
    )


DevEnvironment.objects.bulk_create(environment(number) for number in range(int(os.environ["FERMI_SEED"])))
