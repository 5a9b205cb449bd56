"""Small Kubernetes objects for tests."""

from typing import Any


def config_map(name: str, labels: dict[str, str] | None = None, /, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def pod_spec(*command: str, gpus: int = 0, **more: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "training:1", "command": list(command) or ["true"]}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"restartPolicy": "Never", "containers": [container], **more}


def job(name: str, *command: str, gpus: int = 0, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": pod_spec(*command, gpus=gpus, **(pod or {}))}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template, **spec}}


def jobset(name: str, *jobs: str, script: str = "true", labels: dict[str, str] | None = None,
           **spec: Any) -> dict[str, Any]:  # fmt: skip
    replicated = [
        {"name": one, "template": {"spec": {"backoffLimit": 0, "template": {"spec": pod_spec("sh", "-c", script)}}}}
        for one in jobs
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "labels": labels or {}}, "spec": {"replicatedJobs": replicated, **spec},
    }  # fmt: skip
