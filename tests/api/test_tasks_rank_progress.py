"""How the ranks of a task get on, to whoever may see it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from apps.training.models import Task
from apps.training.presenters import rank_progress as shown
from apps.training.states import TaskState
from fermi.engines.local.engine import LocalBackend
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import RankProgress
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


def test_rank_progress_is_read_from_the_engine_while_the_task_runs(
    colleague: Api, stranger: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def pulses(self: LocalBackend, handle: Any) -> Any:
        if not found:
            raise BackendError("ENGINE_UNREACHABLE", why="away")
        return found[0]

    monkeypatch.setattr(LocalBackend, "pulses", pulses)
    monkeypatch.setattr(shown, "now", lambda: datetime.fromtimestamp(1e9, UTC))
    task = colleague.post("/training-tasks", DOCUMENT).data["taskId"]
    path = f"/training-tasks/{task}/pulses"
    assert colleague.get(path).data == {"taskId": task, "attempt": 0, "ranks": []}
    assert stranger.get(path).status == 404
    Task.objects.filter(pk=task).update(attempt=1, state=TaskState.RUNNING)
    assert colleague.get(path).data["ranks"] == []
    full = RankProgress(1, 12.5, "running", 41, 10.0, 0.2, 900, 0.25, 8.0, 1 << 30, 1 << 28, 1.5)
    found.append({1: full, 0: RankProgress(0, 12.5), 1 << 20: RankProgress(1 << 20, 12.5)})
    first, second = colleague.get(path).data["ranks"]
    assert (first["rank"], first["phase"], first["step"], first["steppedAt"]) == (0, "starting", None, None)
    assert second == {
        "rank": 1, "at": "1970-01-01T00:00:12.500000Z", "phase": "running", "step": 41,
        "steppedAt": "1970-01-01T00:00:10Z", "sinceStep": 1e9 - 10, "stepSeconds": 0.2, "waitingShare": 0.25,
        "printedAt": "1970-01-01T00:00:08Z", "gpuBytes": 1 << 30, "rssBytes": 1 << 28, "cpu": 1.5,
    }  # fmt: skip
    Task.objects.filter(pk=task).update(state=TaskState.SUCCEEDED, due_at=None)
    assert colleague.get(path).data["ranks"] == []
