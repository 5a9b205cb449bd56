"""Answers of the API as it gives them, for the tests here."""

from typing import Any

WARNING = {"code": "CROSS_ZONE", "message": "zones differ", "hint": "expect slower steps"}


def environment(number: int, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"env-{number:03}",
        "name": name,
        "projectId": "project-1",
        "owner": None,
        "clusterId": "local",
        "backend": "local",
        "zone": {"id": "zone-1", "name": "北京可用区A"},
        "kind": "jupyter",
        "status": "running",
        "cordoned": False,
        "selectable": True,
        "notSelectableReason": None,
        "image": "",
        "stack": "pytorch",
        "gpuType": "A100",
        "gpuCount": 2,
        "emulated": True,
        "cpuCores": 16,
        "memoryGb": 128,
        "host": "",
        "ip": None,
        "versions": {},
        "startedAt": None,
        "uptimeSeconds": 3605,
        "heldBy": None,
        "warm": None,
        "standby": {"isWanted": False, "state": "off", "memoryBytes": None, "until": None, "reason": None},
    } | changes


def version(number: int, status: str = "ready", **changes: Any) -> dict[str, Any]:
    return {
        "id": f"version-{number:03}",
        "datasetId": "dataset-001",
        "name": f"v{number}",
        "status": status,
        "progress": 1.0,
        "source": "/data",
        "trainTokens": 1000,
        "validTokens": 10,
        "sizeBytes": 2020,
        "sha256": "0" * 64,
        "error": None,
        "createdAt": f"2026-11-{number:02}T00:00:00Z",
    } | changes


def dataset(number: int, name: str, *versions: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"dataset-{number:03}",
        "name": name,
        "description": "",
        "projectId": None,
        "createdAt": "2026-11-01T00:00:00Z",
        "versions": list(versions),
    }


def model(number: int, name: str) -> dict[str, Any]:
    return {
        "id": f"model-{number:03}",
        "name": name,
        "description": "small",
        "projectId": None,
        "recipe": "gpt",
        "parameters": 1_000_000,
        "defaults": {},
        "createdAt": "2026-11-01T00:00:00Z",
    }


def brief(status: str = "running", **changes: Any) -> dict[str, Any]:
    ended = status in {"succeeded", "failed", "stopped"}
    return {
        "taskId": "task-1",
        "taskName": "预训练 gpt",
        "status": status,
        "reason": None,
        "framework": "pytorch-ddp",
        "distributed": True,
        "nodeCount": 2,
        "totalGpus": 6,
        "worldSize": 6,
        "masterNode": "env-001",
        "projectId": "project-1",
        "owner": "admin",
        "attempt": 1,
        "maxRestarts": 3,
        "priority": 0,
        "createdAt": "2026-11-21T00:00:00Z",
        "startedAt": "2026-11-21T00:00:05Z",
        "endedAt": "2026-11-21T00:01:05Z" if ended else None,
        "step": 10,
        "totalSteps": 1000,
        "loss": 2.5,
    } | changes


def task(status: str = "running", **changes: Any) -> dict[str, Any]:
    return (
        brief(status)
        | {
            "datasetId": "dataset-001",
            "datasetVersionId": "version-001",
            "modelId": "model-001",
            "preflightId": None,
            "summary": {},
            "warnings": [],
            "nodes": [
                {"nodeRank": 0, "environmentId": "env-001", "name": "pytorch-dev-env", "zone": "北京可用区A",
                 "gpuType": "A100", "processes": 2, "emulated": True, "ranks": [0, 1]},
                {"nodeRank": 1, "environmentId": "env-003", "name": "llm-training-env", "zone": "深圳可用区C",
                 "gpuType": "A100", "processes": 4, "emulated": True, "ranks": [2, 3, 4, 5]},
            ],
            "ranks": [{"rank": 0, "localRank": 0, "nodeRank": 0, "device": None, "state": "running", "pid": 77,
                       "exitCode": None}],
            "attempts": [
                {"number": 1, "masterPort": 29500, "outcome": None, "resumeFrom": None,
                 "createdAt": "2026-11-21T00:00:00Z", "runningAt": "2026-11-21T00:00:05Z", "endedAt": None}
            ],
            "allowedActions": ["stop", "clone"],
            "request": {"taskName": "预训练 gpt"},
        }
        | changes
    )  # fmt: skip


CREATED = {
    "taskId": "task-1",
    "status": "initializing",
    "distributedInfo": {
        "nodeCount": 2,
        "totalGpus": 6,
        "masterNode": "env-001",
        "framework": "pytorch-ddp",
        "worldSize": 6,
    },
    "summary": {},
    "warnings": [WARNING],
}
