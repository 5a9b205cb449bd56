"""Asking for pre-flight tests, reading them, and their place before a task."""

import pytest
from django.utils import timezone

from apps.clusters.models import Lease
from apps.training.models import Event, Preflight, Task
from apps.training.reconcile import reconciler
from apps.training.states import TaskState
from fermi.preflight import verdict
from tests.api.test_tasks_create import DOCUMENT

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

ASKED = {"environmentIds": ["env-001", "env-003"], "level": "full"}
SILENT = "PREFLIGHT_NODE_SILENT"


@pytest.fixture(autouse=True)
def an_engine_that_is_away(monkeypatch):
    """Nothing is started here: how a test runs for real is in tests/e2e."""
    monkeypatch.setattr("fermi.engines.local.engine.LocalBackend.submit", lambda *_: None)


def create_preflight(person, **changes) -> Preflight:
    return Preflight.objects.get(pk=person.post("/preflights", {**ASKED, **changes}).data["id"])


def end(test: Preflight, *, fit: bool) -> None:
    """As the reconciler leaves it, without a run."""
    members = verdict.list_members(verdict.JobSpec.from_json(test.run.spec))
    report = verdict.build_report(members if not fit else [], [], "quick")
    Preflight.objects.filter(pk=test.pk).update(report=report)
    Task.objects.filter(pk=test.pk).update(state=TaskState.SUCCEEDED, due_at=None, ended_at=timezone.now(), reason="")


def test_a_preflight_test_is_created_and_queued(colleague):
    answer = colleague.post("/preflights", ASKED)
    assert answer.status == 201
    data = answer.data
    assert data["id"].startswith("preflight-")
    assert (data["status"], data["level"], data["verdict"], data["taskId"]) == ("queued", "full", None, None)
    assert [each["id"] for each in data["environments"]] == ["env-001", "env-003"]
    assert [(node["environmentId"], node["level"]) for node in data["nodes"]] == [
        ("env-001", "unknown"), ("env-003", "unknown"),
    ]  # fmt: skip
    assert colleague.get(f"/preflights/{data['id']}").data == data


def test_a_preflight_test_has_its_own_checkpoint_folder(colleague, settings):
    test = create_preflight(colleague)
    assert test.run.spec["checkpoint_dir"] == str(settings.DATA_DIR / "checkpoints" / test.pk)


def test_a_preflight_test_has_one_process_per_node_and_holds_the_environments(colleague):
    test = create_preflight(colleague)
    reconciler.reconcile_tasks(test.pk)
    run = Task.objects.get(pk=test.pk)
    assert (run.state, run.world_size, run.total_gpus) == ("starting", 2, 6)
    assert set(Lease.objects.values_list("environment_id", "holder")) == {("env-001", run.pk), ("env-003", run.pk)}
    assert colleague.get(f"/preflights/{test.pk}").data["status"] == "running"


def test_a_preflight_test_on_a_busy_environment_names_the_holder(colleague, environments):
    Lease.objects.create(environment=environments["env-003"], holder="task-other")
    test = create_preflight(colleague)
    reconciler.reconcile_tasks(test.pk)
    data = colleague.get(f"/preflights/{test.pk}").data
    assert (data["status"], data["reason"]["code"]) == ("queued", "WAITING_FOR_ENVIRONMENTS")
    assert "task-other" in data["reason"]["message"]


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"environmentIds": []}, {"environmentIds": "ENVIRONMENT_REQUIRED"}),
        ({"environmentIds": ["env-001", "env-004"]}, {"environmentIds.1": "ENVIRONMENT_NOT_RUNNING"}),
        ({"environmentIds": ["env-001", "env-001"]}, {"environmentIds.1": "ENVIRONMENT_DUPLICATE"}),
        ({"environmentIds": ["env-001", "nowhere"]}, {"environmentIds.1": "ENVIRONMENT_UNKNOWN"}),
        ({"masterNode": "env-002"}, {"masterNode": "MASTER_NOT_SELECTED"}),
        ({"framework": "tensorflow", "masterNode": "x"},
         {"framework": "FRAMEWORK_UNKNOWN", "masterNode": "MASTER_NOT_SELECTED"}),
        ({"framework": "preflight"}, {"framework": "FRAMEWORK_UNKNOWN"}),
        ({"level": "deep"}, {"level": "FIELD_CHOICE"}),
    ],
)  # fmt: skip
def test_an_invalid_preflight_request_reports_all_problems(colleague, changes, problems):
    assert colleague.post("/preflights", {**ASKED, **changes}).problems == problems
    assert not Preflight.objects.exists()


def test_viewers_read_and_members_start_preflight_tests(colleague, viewer, stranger, anonymous):
    test = create_preflight(colleague)
    assert viewer.get(f"/preflights/{test.pk}").data["allowedActions"] == []
    assert colleague.get(f"/preflights/{test.pk}").data["allowedActions"] == ["stop"]
    assert viewer.get("/preflights").ids == [test.pk]
    assert viewer.post("/preflights", ASKED).error == "FORBIDDEN"
    assert viewer.post(f"/preflights/{test.pk}/stop").error == "FORBIDDEN"
    assert stranger.get(f"/preflights/{test.pk}").error == "NOT_FOUND"
    assert stranger.get("/preflights").ids == []
    assert set(stranger.post("/preflights", ASKED).problems.values()) >= {"ENVIRONMENT_UNKNOWN"}
    assert anonymous.get("/preflights").error == "NOT_AUTHENTICATED"


def test_the_list_is_filtered_with_a_constant_number_of_queries(colleague, django_assert_max_num_queries):
    first, second = create_preflight(colleague), create_preflight(colleague, environmentIds=["env-002"])
    end(first, fit=True)
    assert colleague.get("/preflights").ids == [second.pk, first.pk]
    assert colleague.get("/preflights", status="done").ids == [first.pk]
    assert colleague.get("/preflights", environment="env-002").ids == [second.pk]
    assert colleague.get("/preflights", search=first.pk[-6:].upper()).ids == [first.pk]
    assert colleague.get("/preflights", search="nothing like it").ids == []
    with django_assert_max_num_queries(6):
        assert len(colleague.get("/preflights").data["items"]) == 2


def test_a_preflight_test_is_not_listed_as_a_task(colleague):
    test = create_preflight(colleague)
    assert colleague.get("/training-tasks").data["items"] == []
    assert colleague.get(f"/training-tasks/{test.pk}").error == "NOT_FOUND"


def test_a_waiting_preflight_test_can_be_stopped(colleague):
    test = create_preflight(colleague)
    for _ in range(2):
        assert colleague.post(f"/preflights/{test.pk}/stop").status == 200
    reconciler.reconcile_tasks(test.pk)
    data = colleague.get(f"/preflights/{test.pk}").data
    assert (data["status"], data["reason"]["code"]) == ("failed", "STOPPED_BY_USER")


def test_a_verdict_is_in_the_readers_language(colleague):
    test = create_preflight(colleague)
    end(test, fit=False)
    said = {}
    for colleague.lang in ("zh-CN", "en"):
        data = colleague.get(f"/preflights/{test.pk}").data
        said[colleague.lang] = [culprit["message"] for culprit in data["verdict"]["culprits"]]
    assert said["en"] == ["pytorch-dev-env produced no output.", "llm-training-env produced no output."]
    assert said["zh-CN"] == ["pytorch-dev-env 没有任何输出。", "llm-training-env 没有任何输出。"]


# Before a task --------------------------------------------------------------------------------------------------------


@pytest.fixture
def task(colleague) -> Task:
    """Queued, its test just begun."""
    task = Task.objects.get(pk=colleague.post("/training-tasks", {**DOCUMENT, "preflight": "quick"}).data["taskId"])
    reconciler.reconcile_tasks(task.pk)
    return Task.objects.get(pk=task.pk)


def process_task(task: Task) -> Task:
    Task.objects.filter(pk=task.pk, due_at__isnull=False).update(due_at=timezone.now())
    reconciler.reconcile_tasks(task.pk)
    return Task.objects.get(pk=task.pk)


def test_a_task_without_a_preflight_test_shows_none(colleague):
    task = colleague.post("/training-tasks", DOCUMENT).data["taskId"]
    reconciler.reconcile_tasks(task)
    assert not Preflight.objects.exists()
    assert colleague.get(f"/training-tasks/{task}").data["preflightId"] is None


def test_a_task_starts_after_its_preflight_test(colleague, task):
    detail = colleague.get(f"/training-tasks/{task.pk}").data
    test = Preflight.objects.get(pk=detail["preflightId"])
    assert (test.before_id, test.level) == (task.pk, "quick")
    assert (detail["status"], detail["reason"]["code"]) == ("queued", "PREFLIGHT_RUNNING")
    assert [node["name"] for node in test.run.spec["nodes"]] == [node.name for node in task.nodes.all().order_by("id")]
    assert process_task(process_task(task)).state == "queued"
    assert Preflight.objects.count() == 1
    end(test, fit=True)
    assert process_task(task).state == "starting"


def test_a_task_fails_when_its_preflight_test_finds_a_bad_node(colleague, task):
    end(task.stage, fit=False)
    assert process_task(task).state == "failed"
    colleague.lang = "en"
    reason = colleague.get(f"/training-tasks/{task.pk}").data["reason"]
    assert reason["code"] == "PREFLIGHT_FAILED"
    assert "pytorch-dev-env produced no output" in reason["message"]
    assert "remove it from the task" in reason["hint"]
    assert "2 more problems" in reason["hint"]
    events = colleague.get(f"/training-tasks/{task.pk}/events").data["items"]
    assert "pytorch-dev-env produced no output" in events[-1]["message"]


def test_a_preflight_test_that_could_not_run_fails_its_task_with_the_reason(colleague, task):
    Task.objects.filter(pk=task.stage.pk).update(
        state=TaskState.FAILED, due_at=None, reason="RUN_TIMEOUT", ended_at=timezone.now()
    )
    assert process_task(task).state == "failed"
    assert colleague.get(f"/training-tasks/{task.pk}").data["reason"]["code"] == "PREFLIGHT_FAILED"


def test_stopping_a_task_stops_its_preflight_test(colleague, task):
    colleague.post(f"/training-tasks/{task.pk}/stop")
    assert process_task(task).state == "stopped"
    assert Task.objects.get(pk=task.stage.pk).stop_requested_at is not None


def test_deleting_a_task_deletes_its_preflight_test(colleague, task):
    end(task.stage, fit=False)
    process_task(task)
    assert colleague.delete(f"/training-tasks/{task.pk}").status == 200
    assert not Task.objects.exists()
    assert not Preflight.objects.exists()


def test_a_clone_keeps_the_preflight_setting(colleague, task):
    assert colleague.get(f"/training-tasks/{task.pk}").data["request"]["preflight"] == "quick"
    assert colleague.post(f"/training-tasks/{task.pk}/clone").data["request"]["preflight"] == "quick"


def test_an_unknown_level_is_refused(colleague):
    assert colleague.post("/training-tasks", {**DOCUMENT, "preflight": "deep"}).problems == {
        "preflight": "FIELD_CHOICE"
    }
    assert not Event.objects.exists()
