"""A platform and dev pods of a cluster that it knows of. Their containers are real: they have processes and files of
their own, and are entered by `pods/exec`."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.kubernetes_platform import DEV
from tests.e2e.test_code import fermi
from tests.fakes.kubernetes import HOME, FakeCluster
from tests.fakes.kubernetes.store import Object
from tests.fakes.pod_exec import run
from tests.platform_process import Running
from tests.polling import until


class DevPods:
    """`ids`: of the environments, in the order in which the pods were added."""

    def __init__(self, platform: Running, folder: Path) -> None:
        self.platform, self.folder = platform, folder
        self.cluster = FakeCluster(folder / "kubernetes").start()
        self.names: list[str] = []
        self.ids: list[str] = []
        self.key = ""

    def close(self) -> None:
        self.platform.close()
        self.cluster.close()
        assert not self.cluster.errors, "\n".join(self.cluster.errors)

    def add(
        self, name: str, *, gpus: int = 0, env: Mapping[str, str] | None = None, kept: Sequence[str] = (HOME,),
        volumes: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """On a node of its own. `kept`: folders that outlive a restart of the container."""
        notes = {"fermi.io/python": sys.executable} | ({"fermi.io/emulated-gpus": str(gpus)} if gpus else {})
        self.cluster.add_node(f"machine-{name}")
        self.cluster.add_dev_pod(
            name, f"machine-{name}", real=True, labels=DEV, annotations=notes, env={"HOME": HOME, **(env or {})},
            empty_dirs=kept, volumes=dict(volumes or {}),
        )  # fmt: skip
        self.names.append(name)
        until(lambda: self.runs(name), what=f"{name} runs")

    def connect(self, kubeconfig: Path | None = None) -> None:
        """Has the platform find them."""
        connection = {"kubeconfig": str(kubeconfig or self.cluster.kubeconfig), "namespace": self.cluster.namespace}
        self.key = self.send("POST", "/clusters", name="lab", backend="kubernetes", connection=connection)["id"]
        self.ids = self.until_found()

    def until_found(self) -> list[str]:
        """Returns the environments, once each is known as it is now: what was found in a container that was killed says
        nothing of the one that runs."""
        return until(self._found, what="the dev pods are found and looked into")

    def _found(self) -> list[str] | None:
        items = self.platform.get("/dev-environments", cluster=self.key, status="running")["items"]
        whole = [self.platform.get(f"/dev-environments/{item['id']}") for item in items]
        found = {one["name"]: one["id"] for one in whole if "python" in ((one["engine"] or {}).get("inside") or {})}
        ready = found.keys() == {*self.names} and all(map(self.runs, self.names))
        return [found[name] for name in self.names] if ready else None

    def pod(self, name: str) -> Object:
        (found,) = self.cluster.pods(name)
        return found

    def runs(self, name: str) -> bool:
        statuses = self.pod(name)["status"].get("containerStatuses") or [{}]
        return bool(statuses[0].get("ready")) and "running" in statuses[0]["state"]

    def run(self, name: str, *command: str) -> str:
        """Returns what it prints."""
        done = run(self.cluster, self.pod(name), *command)
        assert done.code == 0, done.err
        return done.out.decode()

    def send(self, method: str, path: str, **body: Any) -> Any:
        answer = self.platform.api.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()["data"]

    def request(self, script: str, *environments: str, **more: Any) -> dict[str, Any]:
        """Of a task that brings this script, and runs inside of these environments, or of all."""
        code = self.folder / hashlib.sha256(script.encode()).hexdigest()[:8]
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(script)
        sent = json.loads(fermi(self.platform, self.folder, "code", "send", str(code), "-o", "json").stdout)
        ids = [*(environments or self.ids)]
        return {
            "taskName": "inside", "launchMode": "existing", "datasetId": None, "datasetVersionId": None,
            "entrypoint": {"script": "train.py"}, "code": {"snapshot": sent["id"]},
            "distributedConfig": {"enabled": True, "nodeIds": ids, "masterNode": ids[0], "framework": "ddp",
                                  "runIn": "environment"}, **more,
        }  # fmt: skip

    def create(self, request: Mapping[str, Any]) -> str:
        task: str = self.send("POST", "/training-tasks", **request)["taskId"]
        return task
