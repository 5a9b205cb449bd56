"""A platform and a cluster that it knows of, whose dev pods it has found."""

import sys
from typing import Any

from tests.fakes.kubernetes import FakeCluster
from tests.platform_process import Running
from tests.polling import until

DEV = {"fermi.io/dev-environment": "true"}
GPUS = {"pytorch-dev": 2, "llm-training": 4, "nlp-research": 8}
MOUNT = "/fermi-data"
SMALL = {"totalSteps": 5, "batchSize": 2, "evalBatches": 1, "warmupSteps": 1}


class Lab:
    """A platform, a cluster it knows of, and the dev pods in it that it has found."""

    def __init__(self, platform: Running, cluster: FakeCluster) -> None:
        self.platform, self.cluster = platform, cluster
        for number, (name, gpus) in enumerate(GPUS.items()):
            cluster.add_node(f"machine-{number}", zone=f"zone-{number}", cpu="96")  # a dev pod has up to 64
            self.add(name, number, gpus)
        cluster.add_claim("fermi-data", platform.data)
        connection = {
            "kubeconfig": str(cluster.kubeconfig),
            "namespace": cluster.namespace,
            "data": {"mountPath": MOUNT, "volume": {"persistentVolumeClaim": {"claimName": "fermi-data"}}},
        }
        self.id = self.send("POST", "/clusters", name="lab", backend="kubernetes", connection=connection)["id"]
        self.environments = until(self._found, what="the dev pods are found") or {}

    def add(self, name: str, number: int, gpus: int) -> None:
        notes = {"fermi.io/emulated-gpus": str(gpus), "fermi.io/gpu-type": "A100", "fermi.io/python": sys.executable}
        self.cluster.add_dev_pod(
            name, f"machine-{number}", labels=DEV, annotations=notes, cpu=str(gpus * 8), memory=f"{gpus * 8}Gi"
        )

    def _found(self) -> dict[str, str] | None:
        items = self.platform.get("/dev-environments", cluster=self.id, status="running")["items"]
        return {item["name"]: item["id"] for item in items} if len(items) == len(GPUS) else None

    def send(self, method: str, path: str, **body: Any) -> Any:
        answer = self.platform.api.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()["data"]

    def request(self, **changes: Any) -> dict[str, Any]:
        return self.platform.request(list(self.environments.values()), **changes)

    def pods(self, task_id: str) -> list[dict[str, Any]]:
        return self.cluster.pods(f"{task_id}-*")

    def left(self, task_id: str) -> list[str]:
        kinds = ("configmaps", "services", "jobs", "pods")
        return [name for kind in kinds for name in self.cluster.names(kind) if name.startswith(task_id)]
