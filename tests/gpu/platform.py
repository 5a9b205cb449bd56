"""The embedded platform that the checks share: started once, without the demo's emulated environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from tests.platform_process import FINAL, WARM, Running

ENVIRONMENT = "env-local"
"""This machine, with all of its GPUs, as the platform registers it at its first start."""


class Platform(Running):
    """Started by the runner of the checks with `start`; each check speaks to it through `attach`. A process stands by
    with PyTorch imported, as with `make up`."""

    fresh = True

    def __init__(self, data: Path) -> None:
        super().__init__(data, **WARM)

    def _has_data(self) -> bool:
        return self.get("/dev-environments/" + ENVIRONMENT)["status"] == "running"

    def attach(self, port: int) -> Platform:
        """Returns itself, speaking to the platform that runs on the port."""
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        token = (self.data / "token").read_text().strip()
        self.api = httpx.Client(
            base_url=f"{self.url}/api/v1", timeout=30, transport=httpx.HTTPTransport(retries=5),
            headers={"Authorization": f"Bearer {token}", "Accept-Language": "en"},
        )  # fmt: skip
        return self

    def send(self, method: str, path: str, **body: Any) -> Any:
        """Returns `data` of the answer. Raises AssertionError with what was refused."""
        answer = self.api.request(method, path, json=body)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json()["data"] if answer.content else None

    def environment(self, name: str, gpus: int, *, emulated: bool) -> str:
        """Returns the id of an environment of this machine that counts so many GPUs. Emulated ones see no card; others
        see cards 0 to `gpus` - 1, unless the task's `env` sets CUDA_VISIBLE_DEVICES."""
        mine = self.get("/dev-environments/" + ENVIRONMENT)
        body = {
            "name": name, "zone": mine["zone"]["id"], "projectId": mine["projectId"], "clusterId": mine["clusterId"],
            "status": "running", "gpuType": mine["gpuType"] or "A100", "gpuCount": gpus, "emulated": emulated,
            "cpuCores": mine["cpuCores"], "memoryGb": mine["memoryGb"],
        }  # fmt: skip
        made: str = self.send("POST", "/dev-environments", **body)["id"]
        return made

    def diagnosis(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/training-tasks/{task_id}/diagnosis")
        return found

    def events(self, task_id: str) -> list[str]:
        """Returns the texts of what happened, for a check's log."""
        return [json.dumps(one, ensure_ascii=False) for one in self.items(task_id, "events", pageSize=100)]


def attached(data: Path, port: int) -> Platform:
    return Platform(data).attach(port)


__all__ = ["ENVIRONMENT", "FINAL", "Platform", "attached"]
