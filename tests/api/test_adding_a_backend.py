"""docs/adding-a-backend.md is true: its example, a package and one line, is connected, trains, and says in its own
words why an attempt waits and fails."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.training.core import engine_access
from apps.training.models import Attempt, Task
from apps.training.reconcile import reconciler
from fermi.planning import plugins
from tests.api.conftest import Api
from tests.api.test_environments import NEW
from tests.api.test_tasks_create import changed

PACKAGE = "spool_outside"

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


@pytest.fixture
def added(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example, as the page prints it, in a folder that is not ours; and its line in the registry."""
    page = (root / "docs" / "adding-a-backend.md").read_text("utf-8")
    files = dict(re.findall(r"^`spool/(\S+)`:\n\n```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    assert files.keys() == {"__init__.py", "check.py", "causes.py", "texts.toml"}
    package = tmp_path / "outside" / PACKAGE
    package.mkdir(parents=True)
    for name, text in files.items():
        (package / name).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(package.parent))
    invalidate_caches()
    monkeypatch.setitem(plugins.BACKENDS, "spool", PACKAGE)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        sys.modules.pop(name)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def task(added: None, admin: Api, owner: Api, colleague: Api, spool: Path) -> Task:
    """Created through the API on a cluster that was connected through it; its first attempt is submitted."""
    wish = {"name": "lab", "backend": "spool", "connection": {}}
    assert admin.post("/clusters", wish).problems == {"connection.folder": "CONNECTION_INVALID"}
    cluster = admin.post("/clusters", {**wish, "connection": {"folder": str(spool)}}).data["id"]
    assert admin.post(f"/clusters/{cluster}/check").data == {"fit": True, "findings": []}
    environment = owner.post("/dev-environments", {**NEW, "name": "bench-1", "clusterId": cluster}).data["id"]
    wish = changed(distributedConfig=None, environmentIds=[environment])
    assert "order.json" in {one["name"] for one in colleague.post("/training-tasks/preview", wish).data["artifacts"]}
    task = Task.objects.get(pk=colleague.post("/training-tasks", wish).data["taskId"])
    return after_a_pass(task)


def after_a_pass(task: Task, **changes: Any) -> Task:
    Task.objects.filter(pk=task.pk).update(due_at=now(), **changes)
    reconciler.reconcile_due_tasks()
    task.refresh_from_db()
    return task


def scheduler_says(spool: Path, task: Task, **status: str) -> None:
    (spool / f"{task.pk}-{task.attempt}" / "status.json").write_text(json.dumps(status))


def reason(api: Api, task: Task, lang: str) -> dict[str, str]:
    api.lang = lang
    found: dict[str, str] = api.get(f"/training-tasks/{task.pk}").data["reason"]
    return found


def test_an_attempt_on_the_example_backend_runs_and_succeeds(task: Task, spool: Path) -> None:
    order = json.loads((spool / f"{task.pk}-1" / "order.json").read_text())
    assert [rank["env"]["RANK"] for rank in order] == [str(rank) for rank in range(len(order))]
    scheduler_says(spool, task, state="running")
    assert after_a_pass(task).state == "running"
    scheduler_says(spool, task, state="done")
    assert after_a_pass(task).state == "succeeded"


def test_its_causes_are_rendered_in_each_language_and_decide_about_restarts(
    task: Task, spool: Path, colleague: Api
) -> None:
    scheduler_says(spool, task, state="waiting", code="SPOOL_AFTER_HOURS", why="it is night")
    after_a_pass(task, deadline_at=now() - timedelta(seconds=1))
    assert (task.state, task.attempt) == ("starting", 1), "its waiting is patient"
    assert reason(colleague, task, "en")["message"].endswith("waits until the laboratory opens: it is night")
    assert "等待实验室开放" in reason(colleague, task, "zh-CN")["message"]

    Task.objects.filter(pk=task.pk).update(max_restarts=0)
    scheduler_says(spool, task, state="failed", code="SPOOL_BUMPED", why="a visitor came")
    after_a_pass(task)
    assert (task.state, task.attempt) == ("starting", 2), "another attempt follows and costs no restart"
    assert Attempt.objects.get(task=task, number=1).outcome == "SPOOL_BUMPED"

    scheduler_says(spool, task, state="failed", code="SPOOL_BUDGET_SPENT", why="0 h are left")
    after_a_pass(task, max_restarts=3)
    assert (task.state, task.attempt) == ("failed", 2), "no attempt can help"
    shown = reason(colleague, task, "en")
    assert shown["code"] == "SPOOL_BUDGET_SPENT"
    assert "because the budget is spent: 0 h are left" in shown["message"]
    assert shown["hint"].startswith("Ask the laboratory")
    assert "预算已用完" in reason(colleague, task, "zh-CN")["message"]


def test_its_codes_are_rendered_after_the_engine_was_removed(
    task: Task, spool: Path, colleague: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler_says(spool, task, state="failed", code="SPOOL_BUDGET_SPENT", why="0 h are left")
    assert after_a_pass(task).state == "failed"
    monkeypatch.delitem(plugins.BACKENDS, "spool")
    for lang in ("en", "zh-CN"):
        shown = reason(colleague, task, lang)
        assert shown["code"] == "SPOOL_BUDGET_SPENT"
        assert "SPOOL_BUDGET_SPENT" in shown["message"]
        assert "0 h are left" in shown["message"]
    cluster = Cluster.objects.get(name="lab")
    assert not engine_access.build_cause(cluster, "SPOOL_BUMPED").retry
    path = f"/training-tasks/{task.pk}"
    assert [one["outcome"]["code"] for one in colleague.get(path).data["attempts"]] == ["SPOOL_BUDGET_SPENT"]
    assert colleague.get("/clusters").status == colleague.get("/notices").status == 200
    assert after_a_pass(task, state="running", ended_at=None).state == "running", "its engine cannot be asked"


def test_an_undeclared_code_is_shown_and_ends_the_task(task: Task, spool: Path, colleague: Api) -> None:
    scheduler_says(spool, task, state="failed", code="SPOOL_ON_FIRE", why="smoke")
    assert after_a_pass(task).state == "failed"
    assert reason(colleague, task, "en")["message"] == (
        f"The cluster's engine reported SPOOL_ON_FIRE: order: {task.pk}-1, why: smoke"
    )
