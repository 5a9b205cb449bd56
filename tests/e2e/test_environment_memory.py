"""A notebook's kernel holds memory in a dev pod: a preview tells of it, a task waits for it, and begins when its kernel
is ended. The kernel is a real one; the pod is entered by `pods/exec`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes_platform import DEV
from tests.e2e.test_code import fermi
from tests.fakes.execs import run
from tests.fakes.kubernetes import HOME, FakeCluster
from tests.running import Running
from tests.waiting import until

pytestmark = pytest.mark.e2e

KERNEL = "0f9a6bd2-32a4-4b0c-a58e-7a4f9c1c7e11"
START = f"""setsid {sys.executable} -m ipykernel_launcher -f {HOME}/kernel-{KERNEL}.json \\
  "--IPKernelApp.exec_lines=kept = b'x' * (200 << 20)" >/dev/null 2>&1 </dev/null & echo begun"""


class Lab:
    """A dev pod with a notebook's kernel in it."""

    def __init__(self, platform: Running, cluster: FakeCluster) -> None:
        self.platform, self.cluster = platform, cluster
        cluster.add_node("machine")
        notes = {"fermi.io/python": sys.executable}
        cluster.add_dev_pod(
            "lab", "machine", real=True, labels=DEV, annotations=notes,
            env={"HOME": HOME, "JPY_SESSION_NAME": "a.ipynb"}, empty_dirs=(HOME,),
        )  # fmt: skip
        self.pod = until(self._ready, what="the pod runs")
        self.run("sh", "-c", START)
        connection = {"kubeconfig": str(cluster.kubeconfig), "namespace": cluster.namespace}
        key = self.send("POST", "/clusters", name="lab", backend="kubernetes", connection=connection)["id"]
        self.id = until(lambda: self._found(key), what="the pod is found and looked into")

    def _ready(self) -> Any:
        (pod,) = self.cluster.pods("lab")
        return pod if (pod["status"].get("containerStatuses") or [{}])[0].get("ready") else None

    def _found(self, cluster: str) -> str | None:
        items = self.platform.get("/dev-environments", cluster=cluster, status="running")["items"]
        whole = [self.platform.get(f"/dev-environments/{item['id']}") for item in items]
        return next((one["id"] for one in whole if (one["engine"] or {}).get("inside")), None)

    def run(self, *command: str) -> str:
        done = run(self.cluster, self.pod, *command)
        assert done.code == 0, done.err
        return done.out.decode()

    def send(self, method: str, path: str, **body: Any) -> Any:
        answer = self.platform.api.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()["data"]


@pytest.fixture(scope="module")
def lab(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    cluster = FakeCluster(tmp_path_factory.mktemp("kubernetes")).start()
    try:
        yield Lab(platform, cluster)
    finally:
        platform.close()
        cluster.close()
    assert not cluster.errors, "\n".join(cluster.errors)


def test_a_task_waits_for_a_notebook_until_its_kernel_is_ended(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("print('trained', flush=True)\n")
    sent = json.loads(fermi(lab.platform, tmp_path, "code", "send", str(tmp_path / "mine"), "-o", "json").stdout)
    request = {
        "taskName": "waits", "launchMode": "existing", "datasetId": None, "datasetVersionId": None, "whenInUse": "wait",
        "entrypoint": {"script": "train.py"}, "code": {"snapshot": sent["id"]},
        "distributedConfig": {"enabled": True, "nodeIds": [lab.id], "masterNode": lab.id, "framework": "ddp",
                              "runIn": "environment"},
    }  # fmt: skip

    def held() -> Any:
        found = lab.send("POST", "/training-tasks/preview", **request)
        return not found["memoryLooking"] and found["inUse"]

    (found,) = until(held, what="the kernel's memory is seen")
    (kernel,) = found["processes"]
    assert (kernel["kind"], kernel["id"], kernel["name"]) == ("kernel", KERNEL, "a.ipynb")
    assert kernel["rssBytes"] > 200 << 20
    shown = json.loads(fermi(lab.platform, tmp_path, "environments", "memory", "lab", "-o", "json").stdout)
    assert [one["id"] for one in shown["processes"]] == [KERNEL]

    task = lab.send("POST", "/training-tasks", **request)["taskId"]

    def waiting() -> Any:
        now = lab.platform.get(f"/training-tasks/{task}")
        return now["status"] == "queued" and (now["reason"] or {}).get("code") == "ENVIRONMENTS_IN_USE"

    until(waiting, what="the task waits for the memory")
    fermi(lab.platform, tmp_path, "environments", "memory", "lab", "--end", KERNEL)
    assert "ipykernel" not in lab.run(
        "sh", "-c", "cat /proc/[0-9]*/comm /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
    )
    assert lab.platform.until_final(task)["status"] == "succeeded"
    assert lab.platform.log(task, 0).splitlines()[-1] == "trained"
    events = lab.platform.get("/audit-events")["items"]
    assert [one["data"]["kernel"] for one in events if one["action"] == "environment.end-kernel"] == [KERNEL]
