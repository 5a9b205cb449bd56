"""An attempt that its engine stumbles over hides no other, and its task says so."""

import json
from pathlib import Path

import pytest
from django.conf import settings

from apps.common.clock import now
from apps.training.core import engine_access
from apps.training.core.engine_access import build_handle
from apps.training.models import Task
from apps.training.reconcile import reconciler
from apps.training.states.reasons import TaskReason
from fermi import messages
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Observation, Phase
from tests.apps.training.test_log_watcher import another

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def tasks(task: Task) -> list[Task]:
    """Five that run; the third has a status that no release of ours wrote. Of the others nothing is left."""
    spec = {"grace_seconds": 1.0}
    Task.objects.filter(pk=task.pk).update(spec=spec)
    found = [task, *(another(task, f"task-{letter}", spec=spec) for letter in "abcd")]
    folder = Path(settings.DATA_DIR, "runs", f"{found[2].pk}-1")
    folder.mkdir(parents=True)
    for name, content in (("node-0.json", {}), ("node-0.status.json", {"state": "running"})):
        (folder / name).write_text(json.dumps(content))
    return found


def refreshed(tasks: list[Task]) -> list[Task]:
    for task in tasks:
        task.refresh_from_db()
    return tasks


def test_an_unreadable_attempt_hides_no_other_and_is_reported(tasks: list[Task]) -> None:
    Task.objects.update(due_at=now())
    assert reconciler.reconcile_due_tasks() == 5
    outcomes = [task.attempts.get().outcome for task in refreshed(tasks)]
    assert outcomes == [
        TaskReason.ATTEMPT_LOST,
        TaskReason.ATTEMPT_LOST,
        "",
        TaskReason.ATTEMPT_LOST,
        TaskReason.ATTEMPT_LOST,
    ]
    assert tasks[2].reason == TaskReason.ATTEMPT_UNREADABLE
    for lang in messages.LANGUAGES:
        assert "KeyError" in messages.render_text(tasks[2].reason, lang, **tasks[2].reason_params)[0]


def test_an_unreachable_engine_is_asked_once(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def away(self: object, handles: list[object]) -> dict[str, Observation]:
        asked.append(len(handles))
        raise BackendError("ENGINE_UNREACHABLE", why="no route")

    monkeypatch.setattr("fermi.engines.local.engine.LocalBackend.observe", away)
    seen = engine_access.observe_attempts(tasks[0].cluster, [build_handle(task, 1) for task in tasks])
    assert asked == [5]
    assert {one.phase for one in seen.values()} == {Phase.UNKNOWN}
    assert [one.waiting and one.waiting.code for one in seen.values()] == ["ENGINE_UNREACHABLE"] * 5


@pytest.mark.parametrize("said", ["a\0b", "half of a pair: \ud83d"])
def test_any_last_output_of_a_rank_is_stored_and_shown(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """PostgreSQL refuses such texts; the pass would come to the same end for ever, and keep the environments."""
    cause = Cause("OUT_OF_MEMORY", {"node": "a", "nodeRank": 0, "pod": "p", "rank": 0, "evidence": said})
    failed = Observation(Phase.FAILED, True, (), cause)
    monkeypatch.setattr(
        "fermi.engines.local.engine.LocalBackend.observe",
        lambda self, handles: {handle.name: failed for handle in handles},
    )
    Task.objects.filter(pk="task-x").update(due_at=now())
    reconciler.reconcile_due_tasks()
    [task] = refreshed(tasks[:1])
    assert task.attempts.get().outcome == "OUT_OF_MEMORY"
    assert messages.render_text(task.reason, "en", **task.reason_params)
