"""A notebook's kernel holds memory in a dev pod: a preview tells of it, a task waits for it, and begins when its kernel
is ended. The kernel is a real one; the pod is entered by `pods/exec`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dev_pods import DevPods
from tests.e2e.test_code import fermi
from tests.fakes.kubernetes import HOME
from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.e2e

KERNEL = "0f9a6bd2-32a4-4b0c-a58e-7a4f9c1c7e11"
START = f"""setsid {sys.executable} -m ipykernel_launcher -f {HOME}/kernel-{KERNEL}.json \\
  "--IPKernelApp.exec_lines=kept = b'x' * (200 << 20)" >/dev/null 2>&1 </dev/null & echo begun"""


@pytest.fixture(scope="module")
def lab(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevPods]:
    """A dev pod with a notebook's kernel in it."""
    made = DevPods(platform, tmp_path_factory.mktemp("lab"))
    try:
        made.add("lab", env={"JPY_SESSION_NAME": "a.ipynb"})
        made.run("lab", "sh", "-c", START)
        made.connect()
        yield made
    finally:
        made.close()


def test_a_task_waits_for_a_notebook_until_its_kernel_is_ended(lab: DevPods, tmp_path: Path) -> None:
    request = lab.request("print('trained', flush=True)\n", whenInUse="wait")

    def held() -> Any:
        found = lab.send("POST", "/training-tasks/preview", **request)
        return not found["memoryLooking"] and found["inUse"]

    (found,) = until(held, what="the kernel's memory is seen")
    (kernel,) = found["processes"]
    assert (kernel["kind"], kernel["id"], kernel["name"]) == ("kernel", KERNEL, "a.ipynb")
    assert kernel["rssBytes"] > 200 << 20
    shown = json.loads(fermi(lab.platform, tmp_path, "environments", "memory", "lab", "-o", "json").stdout)
    assert [one["id"] for one in shown["processes"]] == [KERNEL]

    task = lab.create(request)

    def waiting() -> Any:
        now = lab.platform.get(f"/training-tasks/{task}")
        return now["status"] == "queued" and (now["reason"] or {}).get("code") == "ENVIRONMENTS_IN_USE"

    until(waiting, what="the task waits for the memory")
    fermi(lab.platform, tmp_path, "environments", "memory", "lab", "--end", KERNEL)
    assert "ipykernel" not in lab.run(
        "lab", "sh", "-c", "cat /proc/[0-9]*/comm /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
    )
    assert lab.platform.until_final(task)["status"] == "succeeded"
    assert lab.platform.log(task, 0).splitlines()[-1] == "trained"
    events = lab.platform.get("/audit-events")["items"]
    assert [one["data"]["kernel"] for one in events if one["action"] == "environment.end-kernel"] == [KERNEL]
