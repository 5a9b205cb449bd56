"""Reading, listing, stopping, retrying, cloning and deleting training tasks."""

import json
import logging
from pathlib import Path

import pytest
from django.utils import timezone

from apps.training.logs.pages import LogPageReader
from apps.training.models import Attempt, Checkpoint, Event, MetricPoint, Task
from apps.training.states import TaskState
from fermi import messages
from tests.api.test_tasks_create import DOCUMENT, changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

SINGLE = changed(distributedConfig=None, environmentIds=["env-001"])


@pytest.fixture
def task(colleague) -> Task:
    return Task.objects.get(pk=colleague.post("/training-tasks", DOCUMENT).data["taskId"])


def end(task: Task, state: TaskState = TaskState.FAILED, reason: str = "QUEUE_TIMEOUT") -> None:
    Task.objects.filter(pk=task.pk).update(state=state, due_at=None, reason=reason, ended_at=timezone.now())


READS = [
    "",
    "/diagnosis",
    "/events",
    "/metrics",
    "/scaling",
    "/checkpoints",
    "/logs",
    "/plan",
    "/scripts",
    "/logs/download",
    "/logs/first-error",
    "/stream",
]


@pytest.mark.parametrize("path", READS)
def test_strangers_see_no_task(task, stranger, anonymous, path):
    assert stranger.get(f"/training-tasks/{task.pk}{path}").error == "NOT_FOUND"
    assert anonymous.get(f"/training-tasks/{task.pk}{path}").error == "NOT_AUTHENTICATED"


@pytest.mark.parametrize(
    ("verb", "path"), [("post", "/stop"), ("post", "/retry"), ("post", "/restart"), ("delete", "")]
)
def test_viewers_read_and_cannot_change_a_task(task, viewer, stranger, verb, path):
    assert viewer.get(f"/training-tasks/{task.pk}").status == 200
    assert getattr(viewer, verb)(f"/training-tasks/{task.pk}{path}").error == "FORBIDDEN"
    assert getattr(stranger, verb)(f"/training-tasks/{task.pk}{path}").error == "NOT_FOUND"


def test_a_list_shows_the_projects_tasks_and_filters_them(colleague, stranger, task):
    colleague.post("/training-tasks", {**SINGLE, "taskName": "small"})
    listed = colleague.get("/training-tasks").data
    assert [item["taskName"] for item in listed["items"]] == ["small", "gpt3-pretraining"]
    assert stranger.get("/training-tasks").data["items"] == []
    for query, names in [
        ({"search": "gpt"}, ["gpt3-pretraining"]),
        ({"environment": "env-001"}, ["small", "gpt3-pretraining"]),
        ({"environment": "env-005"}, ["gpt3-pretraining"]),
        ({"zone": "上海可用区A"}, ["gpt3-pretraining"]),
        ({"status": "running"}, []),
        ({"framework": "pytorch-ddp", "ordering": "name"}, ["gpt3-pretraining", "small"]),
        ({"owner": "nobody"}, []),
        ({"createdBefore": "2020-01-01T00:00:00Z"}, []),
    ]:
        assert [item["taskName"] for item in colleague.get("/training-tasks", **query).data["items"]] == names, query
    assert colleague.get("/training-tasks", status="done").problems == {"status.0": "FIELD_CHOICE"}


def test_a_list_is_ordered_by_progress_with_unknown_last(colleague, task):
    """Also where a filter looks at nodes, which makes rows of which each is to be seen once."""
    for name, progress in [("near", {"step": 9, "loss": 1.5}), ("far", {"step": 200, "loss": 3.0})]:
        made = colleague.post("/training-tasks", {**SINGLE, "taskName": name, "hyperparameters": {"totalSteps": 500}})
        Task.objects.filter(pk=made.data["taskId"]).update(progress=progress, started_at=timezone.now())
    silent = "gpt3-pretraining"
    for ordering, names in [
        ("step", ["near", "far", silent]),
        ("-step", ["far", "near", silent]),
        ("loss", ["near", "far", silent]),
        ("-startedAt", ["far", "near", silent]),
    ]:
        items = colleague.get("/training-tasks", ordering=ordering, environment="env-001").data["items"]
        assert [item["taskName"] for item in items] == names, ordering
    assert [item["totalSteps"] for item in items[:2]] == [500, 500]
    assert len(colleague.get("/training-tasks", ordering="owner").data["items"]) == 3


def test_a_reason_with_a_missing_parameter_shows_a_dash(colleague, task, monkeypatch):
    """As one was stored by a version that had a gap, or will be: nobody's list fails because of it."""
    monkeypatch.setattr(messages, "report_fault", logging.getLogger("fermi.messages").error)
    end(task, reason="RUNNER_LOST")
    Attempt.objects.create(task=task, number=1, master_port=29500, created_at=timezone.now(), outcome="RANK_FAILED")
    Event.objects.create(task=task, at=timezone.now(), kind="attempt", code="ATTEMPT_ENDED", params={})
    for path in ("/training-tasks", f"/training-tasks/{task.pk}", f"/training-tasks/{task.pk}/events"):
        answer = colleague.get(path)
        assert answer.status == 200, answer.data
        assert messages.MISSING_VALUE in json.dumps(answer.data, ensure_ascii=False)


def test_list_queries_do_not_grow_with_tasks(colleague, django_assert_max_num_queries):
    for _ in range(3):
        colleague.post("/training-tasks", SINGLE)
    with django_assert_max_num_queries(6):
        assert len(colleague.get("/training-tasks", pageSize=50).data["items"]) == 3


def test_the_list_shows_the_newest_step_and_loss(colleague, task):
    Task.objects.filter(pk=task.pk).update(progress={"step": 7, "loss": 2.5})
    item = colleague.get("/training-tasks").data["items"][0]
    assert (item["step"], item["loss"]) == (7, 2.5)


def test_stop_is_idempotent_and_recorded_once(colleague, task):
    for _ in range(2):
        assert colleague.post(f"/training-tasks/{task.pk}/stop").status == 200
    assert Event.objects.filter(code="STOP_REQUESTED").count() == 1
    end(task)
    assert colleague.post(f"/training-tasks/{task.pk}/stop").data["status"] == "failed"


def test_retry_makes_a_new_task_that_resumes_from_the_newest_checkpoint(colleague, task, settings):
    assert colleague.post(f"/training-tasks/{task.pk}/retry").error == "TASK_NOT_FINAL"
    end(task)
    newest = Path(settings.DATA_DIR, "checkpoints", task.pk, "checkpoint_step_20.pt")
    newest.parent.mkdir(parents=True)
    newest.write_bytes(b"x")
    for step, path in ((10, "/gone.pt"), (20, str(newest))):
        Checkpoint.objects.create(task=task, attempt=1, step=step, path=path, at=timezone.now())
    new = Task.objects.get(pk=colleague.post(f"/training-tasks/{task.pk}/retry").data["taskId"])
    assert new.pk != task.pk
    assert new.spec["resume_from"] == str(newest)
    end(task, TaskState.SUCCEEDED, "COMPLETED")
    assert colleague.post(f"/training-tasks/{task.pk}/retry").error == "ACTION_NOT_ALLOWED"


def test_a_clone_returns_a_request_that_can_be_submitted(colleague, task):
    request = colleague.post(f"/training-tasks/{task.pk}/clone").data["request"]
    assert request == DOCUMENT
    assert colleague.post("/training-tasks", request).status == 201


def test_delete_removes_logs_and_checkpoints_and_needs_a_final_state(colleague, task, settings):
    assert colleague.delete(f"/training-tasks/{task.pk}").error == "TASK_NOT_FINAL"
    end(task)
    folders = [settings.DATA_DIR / name / task.pk for name in ("logs", "checkpoints")]
    for folder in folders:
        folder.mkdir(parents=True)
    assert colleague.delete(f"/training-tasks/{task.pk}").status == 200
    assert colleague.get(f"/training-tasks/{task.pk}").error == "NOT_FOUND"
    assert not any(folder.exists() for folder in folders)


def test_checkpoints_that_another_task_resumes_from_are_not_deleted(colleague, task, settings):
    end(task)
    other = Task.objects.get(pk=colleague.post("/training-tasks", SINGLE).data["taskId"])
    other.spec["resume_from"] = task.spec["checkpoint_dir"] + "/checkpoint_step_5.pt"
    other.save()
    assert colleague.delete(f"/training-tasks/{task.pk}").error == "CHECKPOINTS_IN_USE"
    other.spec["resume_from"] = f"{settings.DATA_DIR}/trees/{task.pk}/code/out/last.pt"
    other.save()
    assert colleague.delete(f"/training-tasks/{task.pk}").error == "CHECKPOINTS_IN_USE"


def test_allowed_actions_follow_the_state_of_the_task(colleague, task):
    assert colleague.get(f"/training-tasks/{task.pk}").data["allowedActions"] == ["stop", "pause", "clone"]
    end(task)
    assert colleague.get(f"/training-tasks/{task.pk}").data["allowedActions"] == ["retry", "clone", "delete"]


def test_viewers_are_offered_no_forbidden_action(viewer, owner, admin, task):
    for state in TaskState:
        Task.objects.filter(pk=task.pk).update(state=state)
        assert viewer.get(f"/training-tasks/{task.pk}").data["allowedActions"] == []
        (brief,) = viewer.get("/training-tasks").data["items"]
        assert brief["allowedActions"] == []
        offered = owner.get(f"/training-tasks/{task.pk}").data["allowedActions"]
        assert offered == admin.get(f"/training-tasks/{task.pk}").data["allowedActions"]
        assert offered == owner.get("/training-tasks").data["items"][0]["allowedActions"]
        assert "clone" in offered


def test_ranks_show_which_failed_first_and_which_were_ended(colleague, task):
    """What the platform asked to end is known; another -9 is somebody else's."""
    codes = {0: 0, 1: 7, 2: -15, 3: 143, 4: -9, 5: 1, 6: -11, 7: -9}
    ranks = [
        {"rank": rank, "state": "exited", "pid": 1, "exit_code": code, "asked": rank in (2, 3, 4)}
        for rank, code in codes.items()
    ]
    ranks.append({"rank": 8, "state": "running", "pid": 1, "exit_code": None})
    Task.objects.filter(pk=task.pk).update(attempt=1)
    attempt = Attempt.objects.create(
        task=task, number=1, created_at=timezone.now(), seen={"ranks": ranks}, outcome="RANK_FAILED",
        outcome_params={"rank": 1, "nodeRank": 0, "node": "a", "exitCode": 7}, master_port=29500,
    )  # fmt: skip
    data = colleague.get(f"/training-tasks/{task.pk}").data
    endings = {rank["rank"]: rank["ending"] for rank in data["ranks"]}
    assert endings == {
        0: "done", 1: "failed", 2: "ended", 3: "ended", 4: "ended", 5: "after", 6: "after",
        7: "after", **dict.fromkeys(range(8, 14)),
    }  # fmt: skip
    assert [each["failedRank"] for each in data["attempts"]] == [1]
    Attempt.objects.filter(pk=attempt.pk).update(outcome="STOPPED_BY_USER", outcome_params={})
    data = colleague.get(f"/training-tasks/{task.pk}").data
    assert [rank["ending"] for rank in data["ranks"]][:4] == ["done", "failed", "ended", "ended"]
    assert data["attempts"][0]["failedRank"] is None


def test_a_busy_warning_disappears_once_the_task_has_started(colleague, task, environments):
    Task.objects.filter(pk=task.pk).update(warnings=[{"code": "ENVIRONMENTS_BUSY", "params": {"environments": "a"}}])

    def shown():
        return [warning["code"] for warning in colleague.get(f"/training-tasks/{task.pk}").data["warnings"]]

    assert shown() == ["ENVIRONMENTS_BUSY"]
    for state in (TaskState.STARTING, TaskState.RUNNING, TaskState.FAILED):
        Task.objects.filter(pk=task.pk).update(state=state)
        assert shown() == []


def test_events_are_in_the_readers_language(colleague, task):
    assert colleague.get(f"/training-tasks/{task.pk}/events").data["items"][0]["message"] == "colleague 创建了任务。"
    colleague.lang = "en"
    (event,) = colleague.get(f"/training-tasks/{task.pk}/events").data["items"]
    assert event["message"] == "colleague created the task."
    assert colleague.get(f"/training-tasks/{task.pk}/events", after=event["id"]).data["items"] == []


def test_metrics_continue_after_the_last_point(colleague, task):
    MetricPoint.objects.bulk_create(
        MetricPoint(task=task, attempt=1, rank=0, step=n, at=timezone.now(), values={"loss": 1 / n, "lr": 0.1})
        for n in range(1, 6)
    )
    path = f"/training-tasks/{task.pk}/metrics"
    first = colleague.get(path, limit=3, names="loss").data
    assert [point["values"] for point in first["items"]] == [{"loss": 1.0}, {"loss": 0.5}, {"loss": 1 / 3}]
    rest = colleague.get(path, limit=3, after=first["next"]).data
    assert ([point["step"] for point in rest["items"]], rest["next"]) == ([4, 5], None)
    assert colleague.get(path, rank=1).data["items"] == []


def test_an_infinite_loss_is_serialized(colleague, task):
    """PostgreSQL gives 1e25 back as an integer that JSON in and out had no place for."""
    MetricPoint.objects.create(task=task, attempt=1, rank=0, step=1, at=timezone.now(), values={"loss": 1e25})
    assert colleague.get(f"/training-tasks/{task.pk}/metrics").data["items"][0]["values"] == {"loss": 1e25}


def test_logs_are_paged_by_cursor_searched_and_merged(colleague, task, settings):
    Task.objects.filter(pk=task.pk).update(attempt=1)
    Attempt.objects.create(task=task, number=1, master_port=29500, created_at=timezone.now())
    folder = settings.DATA_DIR / "logs" / task.pk / "1"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("".join(f"line {n}\n" for n in range(10)) + "half")
    (folder / "3.log").write_text("损失 2.5\n")
    path = f"/training-tasks/{task.pk}/logs"
    first = colleague.get(path, limit=4).data
    assert [line["text"] for line in first["lines"]] == [f"line {n}" for n in range(4)]
    assert not first["end"]
    rest = colleague.get(path, cursor=first["cursor"]).data
    assert [line["text"] for line in rest["lines"]] == [f"line {n}" for n in range(4, 10)]
    assert rest["end"]
    assert colleague.get(path, cursor=rest["cursor"]).data["lines"] == []
    assert [line["offset"] for line in colleague.get(path, search="LINE 7").data["lines"]] == [49]
    assert [line["text"] for line in colleague.get(path, tail="true", limit=2).data["lines"]] == ["line 8", "line 9"]
    merged = colleague.get(path, rank="all").data
    assert {line["rank"] for line in merged["lines"]} == {0, 3}
    assert merged["lines"][-1] == {"rank": 3, "offset": 0, "text": "损失 2.5"}
    assert colleague.get(path, rank="all", cursor=merged["cursor"]).data["lines"] == []
    Attempt.objects.update(ended_at=timezone.now())
    assert [line["text"] for line in colleague.get(path, cursor=rest["cursor"]).data["lines"]] == ["half"]


def test_all_ranks_are_downloaded_one_after_the_other(colleague, task, settings):
    Task.objects.filter(pk=task.pk).update(attempt=1)
    Attempt.objects.create(task=task, number=1, master_port=29500, created_at=timezone.now())
    folder = settings.DATA_DIR / "logs" / task.pk / "1"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("zero\n")
    (folder / "13.log").write_text("thirteen")
    task.refresh_from_db()
    sections = b"".join(LogPageReader(task, 1).everything()).decode().split("==> rank ")
    assert sections[1] == "0 <==\nzero\n\n"
    assert (len(sections), sections[-1]) == (15, "13 <==\nthirteen\n")
    headers = colleague.get(f"/training-tasks/{task.pk}/logs/download", rank="all").headers
    assert headers["Content-Disposition"] == f'attachment; filename="{task.pk}-1.log"'


@pytest.mark.parametrize(
    ("query", "code"),
    [({"rank": "14"}, "RANK_UNKNOWN"), ({"rank": "x"}, "RANK_UNKNOWN"), ({"cursor": "-1"}, "CURSOR_INVALID"),
     ({"rank": "all", "cursor": "a:b"}, "CURSOR_INVALID")],
)  # fmt: skip
def test_an_invalid_log_cursor_is_400(colleague, task, query, code):
    answer = colleague.get(f"/training-tasks/{task.pk}/logs", **query)
    assert (answer.status, answer.error) == (400, code)
