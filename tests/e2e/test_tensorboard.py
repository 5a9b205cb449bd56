"""The real TensorBoard, opened for tasks of the real platform, and read through the proxy."""

from contextlib import closing
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.platform_process import WARM, Running
from tests.polling import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("tensorboard") is None, reason="TensorBoard is not installed"),
]
SETTINGS = WARM
WITH_FILES = """
import os
from torch.utils.tensorboard import SummaryWriter

with SummaryWriter(os.path.join(os.environ["FERMI_OUTPUT_DIR"], "runs", "first")) as writer:
    for step in range(5):
        writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_text("note", f"step {step}", step)
"""
WITHOUT_FILES = """
import json
for step in range(5):
    print(json.dumps({"step": step, "accuracy": step / 5}), flush=True)
"""


def submit(platform: Running, name: str, text: str) -> str:
    script = platform.data / "workspace" / f"{name}.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(text)
    none = {"datasetId": None, "datasetVersionId": None, "modelId": None}
    return platform.create(["env-001"], taskName=name, entrypoint={"script": script.name}, **none)


def enter(platform: Running, environment: str) -> httpx.Client:
    """Return a client that has been let in at the environment's proxy address."""
    door = platform.api.post(f"/dev-environments/{environment}/doors", json={"door": "tensorboard"}).json()["data"]
    at = urlsplit(door["url"])
    client = httpx.Client(base_url=platform.url, headers={"Host": at.netloc}, timeout=60)
    entered = client.get(f"{at.path}?{at.query}")
    client.headers["Cookie"] = entered.headers["set-cookie"].partition(";")[0]
    return client


def test_a_tensorboard_shows_tasks_with_event_files_and_without(platform: Running) -> None:
    tasks = [submit(platform, "with files", WITH_FILES), submit(platform, "without files", WITHOUT_FILES)]
    for task in tasks:
        assert platform.until_final(task, 300)["status"] == "succeeded", platform.log(task)
    made = platform.api.post("/tensorboards", json={"taskIds": tasks}).json()["data"]

    def read() -> dict[str, Any] | None:
        board: dict[str, Any] = platform.get(f"/tensorboards/{made['id']}")
        return None if board["state"] == "starting" else board

    board = until(read, what="the TensorBoard is ready", seconds=300)
    assert board["state"] == "ready", board["reason"]
    with closing(enter(platform, board["environmentId"])) as client:

        def find_runs() -> dict[str, Any] | None:
            tags: dict[str, Any] = client.get("/data/plugin/scalars/tags").json()
            return tags if len(tags) == 2 else None

        tags = until(find_runs, what="both runs are shown", seconds=120)
        assert {run: list(found) for run, found in tags.items()} == {
            "with files/runs/first": ["loss"],
            "without files": ["accuracy"],
        }
        asked = {"run": "without files", "tag": "accuracy"}
        values = client.get("/data/plugin/scalars/scalars", params=asked).json()
        assert [(step, round(value, 3)) for _, step, value in values] == [(step, step / 5) for step in range(5)]
        assert "with files/runs/first" in client.get("/data/plugin/text/tags").json(), "not only scalars"
    hosted = platform.get(f"/dev-environments/{board['environmentId']}")["hosted"]
    [door] = hosted["doors"]
    direct = httpx.get(f"http://127.0.0.1:{door['port']}/data/runs", trust_env=False)
    assert direct.status_code == 403, "other processes of the machine read nothing"
    assert platform.api.delete(f"/tensorboards/{board['id']}").status_code == 200

    def is_gone() -> bool:
        return platform.api.get(f"/dev-environments/{board['environmentId']}").status_code == 404

    until(is_gone, what="its environment is deleted", seconds=120)
