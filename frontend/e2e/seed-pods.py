"""`manage.py shell` reads this: a cluster with an API server that does not answer, and dev pods of it as discovery
stores them: one holds its node's GPUs, one is on a node with free GPUs, one has no Python, and one has neither way."""

from typing import Any

from django.conf import settings

from apps.accounts.models import Project
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.common.clock import now

config = settings.DATA_DIR / "kubeconfig"
config.write_text(
    "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    "users: [{name: x, user: {}}]\ncontexts: [{name: x, context: {cluster: x, user: x, namespace: training}}]\n"
)
cluster = Cluster.objects.create(
    name="pods", backend="kubernetes", connection={"kubeconfig": str(config), "namespace": "training"}
)
project = Project.objects.get(environments__pk="env-001")
zone = AvailabilityZone.objects.earliest("pk")
PYTHON = {"python": "/opt/conda/bin/python", "version": "3.11.9"}
NO_PYTHON = {"why": "INSIDE_NO_PYTHON", "params": {}}


def pod(name: str, gpus: int, held: int, inside: dict[str, Any]) -> DevEnvironment:
    engine = {
        "pod": name, "container": "main", "namespace": "training", "inside": inside, "gpus": {"there": 8, "held": held},
    }  # fmt: skip
    return DevEnvironment.objects.create(
        pk=f"env-{name}", name=name, project=project, cluster=cluster, zone=zone, status=EnvironmentStatus.RUNNING,
        gpu_type="H100", gpu_count=gpus, cpu_cores=64, memory_gb=512, host=f"machine-{name}", ip="10.9.0.1",
        image="registry.example/dev:1", engine=engine, started_at=now(),
    )  # fmt: skip


pod("full", 8, 8, PYTHON)
pod("roomy", 2, 4, PYTHON)
pod("bare", 2, 4, NO_PYTHON)
pod("closed", 8, 8, NO_PYTHON)
