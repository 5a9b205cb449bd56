"""Runs that a task's script began at W&B: who sees them, and how those that were offline are sent."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.common.clock import now
from apps.training.core.tracker_runs import MAX_RUNS, ReportedRun, store_runs
from apps.training.models import Task, TaskPredecessor, TrackerRun
from apps.training.services import delete
from apps.training.states import TaskState
from fermi.metrics.tracker_runs import TrackerRun as FoundRun
from tests.api.test_code import upload_snapshot
from tests.api.test_tasks_after import create, end

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

KEY = "0123456789abcdef" * 2 + "01234567"
OFFLINE = "wandb/offline-run-20261128_101500-a1b2c3d4"


@pytest.fixture(autouse=True)
def data_folder(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


@pytest.fixture
def task(colleague: Any) -> str:
    return create(colleague, "gpt", env={"WANDB_BASE_URL": "https://w.example", "WANDB_MODE": "offline", "A": "b"})


@pytest.fixture
def key(owner: Any) -> None:
    owner.put("/projects/project-one/secrets/WANDB_API_KEY", {"value": KEY})


def report(task: str, *runs: FoundRun, attempt: int = 1, rank: int = 0) -> None:
    store_runs(task, attempt, [ReportedRun("wandb", rank, now(), one) for one in runs])


def write_run(task: str, folder: str = OFFLINE, *names: str) -> Path:
    path = Path(settings.DATA_DIR, "outputs", task, folder)
    path.mkdir(parents=True)
    for name in names or ("run-a1b2c3d4.wandb",):
        (path / name).write_bytes(b"x")
    return path


def list_states(api: Any, task: str) -> dict[str, str]:
    return {one["runId"]: one["state"] for one in api.get(f"/training-tasks/{task}/tracker-runs").data["items"]}


def sync(api: Any, task: str, **body: Any) -> Any:
    return api.post(f"/training-tasks/{task}/tracker-runs/sync", body)


def test_members_see_the_runs_and_strangers_do_not(task, owner, viewer, stranger, anonymous):
    report(task, FoundRun(task, "ann", "gpt", "calm-sea", f"https://wandb.ai/ann/gpt/runs/{task}"))
    path = f"/training-tasks/{task}/tracker-runs"
    for api in (owner, viewer):
        found = api.get(path).data
        assert [(one["runId"], one["url"], one["state"]) for one in found["items"]] == [
            (task, f"https://wandb.ai/ann/gpt/runs/{task}", "online")
        ]
        assert found["own"]["entity"] == "ann"
        assert found["canSync"] is False
    assert (stranger.get(path).status, anonymous.get(path).status) == (404, 401)
    assert (viewer.post(f"{path}/sync").status, stranger.post(f"{path}/sync").status) == (403, 404)
    assert anonymous.post(f"{path}/sync").status == 401


def test_a_run_that_goes_on_is_one_row_and_the_tasks_own(task, colleague):
    other = FoundRun("other", project="gpt", url="https://w.example/other")
    mine = FoundRun(task, project="gpt", url="https://w.example/mine")
    report(task, other, rank=1)
    report(task, mine)
    report(task, mine, attempt=2)
    found = colleague.get(f"/training-tasks/{task}/tracker-runs").data
    assert [(one["runId"], one["attempt"]) for one in found["items"]] == [(task, 2), ("other", 1)]
    assert found["own"]["url"] == "https://w.example/mine"


def test_a_script_that_invents_runs_has_a_bounded_number(task):
    report(task, *(FoundRun(f"run-{number}") for number in range(MAX_RUNS + 5)))
    assert TrackerRun.objects.filter(task=task).count() == MAX_RUNS


def test_offline_runs_are_sent_by_a_task_with_the_projects_secret(task, colleague, key):
    write_run(task)
    report(task, FoundRun("a1b2c3d4", project="gpt", folder=OFFLINE, is_offline=True))
    end(task, TaskState.FAILED)
    assert colleague.get(f"/training-tasks/{task}/tracker-runs").data["canSync"] is True
    made = sync(colleague, task)
    assert made.status == 201, made.body
    sender = Task.objects.get(pk=made.data["taskId"])
    assert sender.request["secretEnv"] == {"WANDB_API_KEY": "WANDB_API_KEY"}
    assert sender.request["env"] == {"WANDB_BASE_URL": "https://w.example"}
    assert sender.request["entrypoint"]["command"][-1] == OFFLINE
    assert TaskPredecessor.objects.get(task=sender).parent == task
    shown = colleague.get(f"/training-tasks/{sender.pk}")
    assert KEY not in str(shown.body) + str(made.body) + str(sender.spec)
    assert list_states(colleague, task) == {"a1b2c3d4": "syncing"}
    again = sync(colleague, task)
    assert (again.status, again.error) == (409, "WANDB_SYNC_UNDER_WAY")


def test_the_task_that_sends_has_the_packages_of_the_code(colleague, key):
    tree = {"train.py": b"import wandb", "requirements.txt": b"wandb"}
    snapshot = upload_snapshot(colleague, tree)
    task = create(colleague, code={"snapshot": snapshot}, entrypoint={"script": "train.py"})
    write_run(task)
    end(task, TaskState.SUCCEEDED)
    made = sync(colleague, task)
    assert made.status == 201, made.body
    sent = Task.objects.get(pk=made.data["taskId"]).spec["code"]
    assert (sent["snapshot"], sent["requirements"]) == (snapshot, "auto")


def test_what_was_sent_is_not_sent_again_also_once_that_task_is_deleted(task, colleague, key):
    write_run(task)
    end(task, TaskState.SUCCEEDED)
    failed = Task.objects.get(pk=sync(colleague, task).data["taskId"])
    end(failed.pk, TaskState.FAILED)
    assert list_states(colleague, task) == {"a1b2c3d4": "offline"}, "found in the outputs, reported by no one"
    sender = Task.objects.get(pk=sync(colleague, task).data["taskId"])
    end(sender.pk, TaskState.SUCCEEDED)
    assert list_states(colleague, task) == {"a1b2c3d4": "synced"}
    assert sync(colleague, task).error == "WANDB_NOTHING_TO_SYNC"
    delete.remove_task(Task.objects.get(pk=sender.pk), lambda: None)
    assert list_states(colleague, task) == {"a1b2c3d4": "synced"}


def test_of_a_task_that_failed_over_one_run_the_others_are_not_sent_again(task, colleague, key):
    write_run(task)
    write_run(task, "wandb/offline-run-20261128_111500-second")
    end(task, TaskState.SUCCEEDED)
    sender = sync(colleague, task).data["taskId"]
    sent = Path(settings.DATA_DIR, "outputs", sender, "synced")
    sent.mkdir(parents=True)
    (sent / OFFLINE.rpartition("/")[2]).write_text("https://w.example/ann/gpt/runs/a1b2c3d4", "utf-8")
    end(sender, TaskState.FAILED)
    assert list_states(colleague, task) == {"a1b2c3d4": "synced", "second": "offline"}
    delete.remove_task(Task.objects.get(pk=sender), lambda: None)
    found = colleague.get(f"/training-tasks/{task}/tracker-runs").data
    assert found["own"]["url"] == "https://w.example/ann/gpt/runs/a1b2c3d4"
    assert list_states(colleague, task) == {"a1b2c3d4": "synced", "second": "offline"}
    again = Task.objects.get(pk=sync(colleague, task).data["taskId"])
    assert again.request["entrypoint"]["command"][-1].endswith("-second")
    assert OFFLINE not in again.request["entrypoint"]["command"]


def test_runs_that_someone_has_sent_and_files_that_are_gone_are_not_offered(task, colleague, key):
    write_run(task, OFFLINE, "run-a1b2c3d4.wandb", "run-a1b2c3d4.wandb.synced")
    write_run(task, "wandb/offline-run-20261128_111500-empty", "notes.txt")
    report(task, FoundRun("lost", folder="wandb/offline-run-20261128_121500-lost", is_offline=True))
    end(task, TaskState.SUCCEEDED)
    assert list_states(colleague, task) == {"a1b2c3d4": "synced", "empty": "gone", "lost": "gone"}
    assert sync(colleague, task).error == "WANDB_NOTHING_TO_SYNC"


def test_without_a_key_the_answer_says_what_to_do(task, colleague):
    write_run(task)
    assert sync(colleague, task).error == "WANDB_TASK_ACTIVE"
    end(task, TaskState.SUCCEEDED)
    refused = sync(colleague, task)
    assert (refused.status, refused.problems) == (409, {"secret": "WANDB_KEY_MISSING"})
    assert "fermi secrets set WANDB_API_KEY" in refused.body["errors"][0]["hint"]
    assert sync(colleague, task, secret="team-key").problems == {"secret": "WANDB_KEY_MISSING"}


def test_an_environment_that_no_one_knows_is_a_problem_of_the_request(task, colleague, key):
    write_run(task)
    end(task, TaskState.SUCCEEDED)
    refused = sync(colleague, task, environmentId="env-999")
    assert refused.status in (400, 404, 422)
    assert list_states(colleague, task) == {"a1b2c3d4": "offline"}


def test_links_out_of_the_outputs_are_not_followed(task, colleague, key, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run-x.wandb").write_bytes(b"x")
    place = write_run(task).parent
    (place / "offline-run-20261128_131500-link").symlink_to(outside)
    end(task, TaskState.SUCCEEDED)
    assert list_states(colleague, task) == {"a1b2c3d4": "offline"}


def test_runs_end_with_their_task(task):
    report(task, FoundRun("a"))
    end(task, TaskState.SUCCEEDED)
    Task.objects.filter(pk=task).update(ended_at=now() - timedelta(days=1))
    delete.remove_task(Task.objects.get(pk=task), lambda: None)
    assert not TrackerRun.objects.exists()
