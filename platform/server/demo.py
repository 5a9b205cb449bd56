"""Demo inventory: environments whose GPUs are emulated by processes on this machine, a real text dataset, a small
model."""

from datetime import timedelta
from typing import Any

from apps.accounts.models import Project
from apps.catalog.models import Dataset, DatasetVersion, Model
from apps.catalog.preparation import STDLIB_SOURCE
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentKind, EnvironmentStatus
from apps.common.clock import now

CPUS_PER_GPU = 8
MEMORY_GB_PER_GPU = 64

ZONES = {"zone-beijing-a": "北京可用区A", "zone-shenzhen-c": "深圳可用区C", "zone-shanghai-a": "上海可用区A"}

# id, name, kind, zone, GPUs, GPU type, stack, image, IP, how long it has been running (None: stopped)
ENVIRONMENTS: list[tuple[str, str, str, str, int, str, str, str, str, timedelta | None]] = [
    ("env-001", "pytorch-dev-env", EnvironmentKind.JUPYTER, "zone-beijing-a", 2, "A100", "pytorch",
     "jupyter/pytorch-notebook", "192.168.1.10", timedelta(days=5, hours=3)),
    ("env-002", "cv-experiment-env", EnvironmentKind.JUPYTER, "zone-beijing-a", 2, "V100", "pytorch",
     "pytorch/pytorch", "192.168.1.11", timedelta(days=2, hours=7)),
    ("env-003", "llm-training-env", EnvironmentKind.CUSTOM, "zone-shenzhen-c", 4, "A100", "transformers",
     "huggingface/transformers-pytorch-gpu", "192.168.2.20", timedelta(hours=12)),
    ("env-004", "vscode-debug-env", EnvironmentKind.VSCODE, "zone-shenzhen-c", 1, "A100", "pytorch",
     "pytorch/pytorch", "192.168.2.21", None),
    ("env-005", "nlp-research-lab", EnvironmentKind.CUSTOM, "zone-shanghai-a", 8, "A100", "transformers",
     "huggingface/transformers-pytorch-gpu", "192.168.3.30", timedelta(days=1, hours=6)),
]  # fmt: skip

GPT_DEFAULTS: dict[str, Any] = {
    "batchSize": 8,
    "gradientAccumulationSteps": 1,
    "dtype": "auto",
    "totalSteps": 200,
    "learningRate": 0.001,
    "warmupSteps": 20,
    "layers": 2,
    "heads": 4,
    "hiddenSize": 64,
    "sequenceLength": 64,
    "evalEvery": 50,
    "logEvery": 10,
    "checkpointEvery": 50,
}


def add_environments(
    project: Project, cluster: Cluster, versions: dict[str, str], network: dict[str, Any] | None = None
) -> None:
    """Create the demo environments. `versions`, `network`: this machine's, since the processes really run here."""
    for key, name in ZONES.items():
        AvailabilityZone.objects.get_or_create(pk=key, defaults={"name": name})
    for key, name, kind, zone, gpus, gpu_type, stack, image, ip, uptime in ENVIRONMENTS:
        facts = {
            "name": name,
            "project": project,
            "cluster": cluster,
            "zone_id": zone,
            "kind": kind,
            "status": EnvironmentStatus.STOPPED if uptime is None else EnvironmentStatus.RUNNING,
            "image": image,
            "stack": stack,
            "gpu_type": gpu_type,
            "gpu_count": gpus,
            "emulated": True,
            "cpu_cores": gpus * CPUS_PER_GPU,
            "memory_gb": gpus * MEMORY_GB_PER_GPU,
            "host": name,
            "ip": ip,
            "versions": versions,
            "network": network or {},
            "started_at": None if uptime is None else now() - uptime,
        }
        DevEnvironment.objects.get_or_create(pk=key, defaults=facts)


def add_catalog() -> None:
    """Create the demo dataset (text that every machine with Python has, tokenised by the sweep) and the demo model, for
    all projects."""
    dataset, _ = Dataset.objects.get_or_create(
        pk="dataset-001",
        defaults={
            "name": "python-stdlib",
            "description": "Source text of the Python standard library, one token per byte.",
        },
    )
    DatasetVersion.objects.get_or_create(
        pk="version-001", defaults={"dataset": dataset, "name": "v1", "source": STDLIB_SOURCE, "due_at": now()}
    )
    Model.objects.get_or_create(
        pk="model-001",
        defaults={
            "name": "gpt-small",
            "description": "A small GPT, trained from scratch by the platform's reference trainer.",
            "recipe": "gpt",
            "defaults": GPT_DEFAULTS,
        },
    )
