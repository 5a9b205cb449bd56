"""The queue over the API: who waits for what, in whose eyes; what must end first; and being moved."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.accounts.models import AuditEvent, Project
from apps.catalog.models import Dataset, Model
from apps.clusters.models import DevEnvironment, Lease
from apps.common.clock import now
from apps.scheduling.models import Reservation, Usage
from apps.training.models import Attempt, Event, Task
from apps.training.queue import outlook
from apps.training.states import TaskState
from fermi.planning.request import DEFAULT_MIN_RUN_SECONDS
from fermi.scheduler.forecast import GRACE_SECONDS
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


def waits(api: Api, name: str, *environments: str, **changes: Any) -> str:
    """A task that stands in line for these environments, as its own pass would have put it there."""
    config = {"nodeIds": list(environments), "masterNode": environments[0], "framework": "ddp"}
    nodes = {"environmentIds": list(environments), "distributedConfig": config}
    task_id: str = api.post("/training-tasks", changed(taskName=name, **nodes, **changes)).data["taskId"]
    Task.objects.filter(pk=task_id).update(state=TaskState.QUEUED, in_line_at=now())
    return task_id


def mark_running(task_id: str, *environments: str, **fields: Any) -> None:
    """The task has these environments and runs."""
    Task.objects.filter(pk=task_id).update(state=TaskState.RUNNING, in_line_at=None, **fields)
    for key in environments:
        Lease.objects.create(environment_id=key, holder=task_id)


def order(api: Api) -> list[str]:
    return [item["taskName"] for item in api.get("/queue").data["items"]]


def test_the_queue_shows_user_reason_and_waiting_time(colleague: Api, viewer: Api) -> None:
    mark_running(waits(colleague, "holder", "env-001"), "env-001")
    first, second = waits(colleague, "first", "env-001"), waits(colleague, "second", "env-001")
    found = viewer.get("/queue").data
    assert (found["total"], found["page"], found["pageSize"]) == (2, 1, 20)
    one, other = found["items"]
    assert (one["number"], one["taskId"], one["taskName"], one["owner"]) == (1, first, "first", "colleague")
    assert other["taskId"] == second
    assert (one["priority"], one["projectId"], one["preemptible"], one["mayMove"]) == (
        "normal", "project-one", False, False,
    )  # fmt: skip
    assert one["asks"] == {
        "nodes": 1, "gpus": 2, "gpuTypes": ["A100"], "text": "pytorch-dev-env（环境：1，GPU：2（A100））"
    }  # fmt: skip
    assert one["reason"]["message"]
    assert [item["taskName"] for item in viewer.get("/queue", page=2, pageSize=1).data["items"]] == ["second"]
    assert [item["taskName"] for item in viewer.get("/queue", search="eco").data["items"]] == ["second"]


def test_strangers_see_a_position_ahead_without_its_owner(colleague: Api, stranger: Api) -> None:
    task_id = waits(colleague, "secret name", "env-001")
    [item] = stranger.get("/queue").data["items"]
    assert (item["number"], item["taskId"], item["taskName"], item["owner"], item["projectId"], item["reason"]) == (
        1, None, "", "", None, None,
    )  # fmt: skip
    assert (item["asks"]["nodes"], item["asks"]["gpus"], item["priority"]) == (1, 2, "normal")
    assert "pytorch-dev-env" not in str(item)
    assert stranger.get("/queue", project="project-one").data["items"] == []
    assert stranger.get("/queue", search="secret").data["items"] == []
    assert stranger.get(f"/training-tasks/{task_id}/queue").error == "NOT_FOUND"
    assert stranger.post(f"/training-tasks/{task_id}/move", {"before": None}).error == "NOT_FOUND"
    for path in ("/queue", f"/training-tasks/{task_id}/queue"):
        assert Api().get(path).error == "NOT_AUTHENTICATED"


def test_a_task_that_is_not_queued_says_so(colleague: Api, viewer: Api) -> None:
    task_id = waits(colleague, "paused", "env-001")
    Task.objects.filter(pk=task_id).update(
        in_line_at=None, reason="PREFLIGHT_RUNNING", reason_params={"preflight": "x"}
    )
    found = viewer.get(f"/training-tasks/{task_id}/queue").data
    assert (found["number"], found["of"], found["after"], found["needs"]) == (None, 0, [], [])
    assert (found["begins"], found["engine"], found["reason"]["code"]) == (None, None, "PREFLIGHT_RUNNING")


def test_a_task_shows_what_is_kept_for_it_and_when_it_starts(
    colleague: Api, viewer: Api, stranger: Api, other_project: Project
) -> None:
    bounded, endless = (
        waits(colleague, "bounded", "env-001", maxRunSeconds=3600),
        waits(colleague, "endless", "env-003"),
    )
    mark_running(bounded, "env-001")
    mark_running(endless, "env-003")
    both, one = waits(colleague, "both", "env-001", "env-003"), waits(colleague, "one", "env-001")
    found = viewer.get(f"/training-tasks/{both}/queue").data
    assert (found["number"], found["of"], found["begins"]) == (1, 2, None)
    assert found["reason"]["code"] == "WAITING_FOR_ENVIRONMENTS"
    assert {(need["name"], need["held"], need["heldBy"], need["heldByName"]) for need in found["needs"]} == {
        ("pytorch-dev-env", True, bounded, "bounded"), ("llm-training-env", True, endless, "endless")
    }  # fmt: skip
    until = {ahead["taskId"]: ahead["until"] for ahead in found["after"]}
    assert until.keys() == {bounded, endless}
    assert (until[bounded] is None, until[endless]) == (False, None)
    diagnosed = viewer.get(f"/training-tasks/{both}/diagnosis").data["findings"][0]
    said = " ".join(evidence["message"] for evidence in diagnosed["evidence"])
    assert "bounded" in said
    assert {"SEE_TASK", "WAIT"} <= {action["code"] for action in diagnosed["actions"]}
    Task.objects.filter(pk=endless).update(max_run_seconds=60)
    Task.objects.filter(pk=both).update(max_run_seconds=60)
    found = viewer.get(f"/training-tasks/{one}/queue").data
    assert [(ahead["taskId"], ahead["until"]) for ahead in found["after"]] == [(both, found["begins"])]
    Task.objects.filter(pk=both).update(in_line_at=None)
    found = viewer.get(f"/training-tasks/{one}/queue").data
    assert (found["number"], found["begins"]) == (1, until[bounded]), "it declared when it ends"
    Task.objects.filter(pk=bounded).update(project=other_project)
    found = viewer.get(f"/training-tasks/{one}/queue").data
    assert found["after"] == [{"taskId": None, "name": "", "until": until[bounded]}]
    assert (found["needs"][0]["heldBy"], found["needs"][0]["heldByName"]) == (None, None)
    [finding] = viewer.get(f"/training-tasks/{one}/diagnosis").data["findings"]
    assert "bounded" not in str(finding["evidence"])


def test_a_task_shows_when_others_are_preempted_for_it(colleague: Api, viewer: Api) -> None:
    holder = waits(colleague, "holder", "env-005", preemptible=True, maxRunSeconds=36_000)
    mark_running(holder, "env-005")
    high = waits(colleague, "high", "env-005", priority="high")
    found = viewer.get(f"/training-tasks/{high}/queue").data
    begins = Lease.objects.get(environment_id="env-005").since + timedelta(
        seconds=DEFAULT_MIN_RUN_SECONDS + GRACE_SECONDS
    )
    assert abs(datetime.fromisoformat(found["begins"]) - begins) < timedelta(seconds=1)
    assert [(ahead["taskId"], ahead["until"]) for ahead in found["after"]] == [(holder, found["begins"])]
    assert spans(viewer, "env-005") == [("held", holder, "holder", False), ("next", high, "high", False)]


def test_estimates_use_past_runs_and_list_changes_that_would_start_it_now(colleague: Api, viewer: Api) -> None:
    old, holder = waits(colleague, "daily", "env-005"), waits(colleague, "daily", "env-005")
    end = now() - timedelta(hours=1)
    Task.objects.filter(pk=old).update(state=TaskState.SUCCEEDED, in_line_at=None, due_at=None, ended_at=end)
    begun = end - timedelta(hours=2)
    Attempt.objects.create(task_id=old, number=1, master_port=29500, created_at=begun, ended_at=end)
    mark_running(holder, "env-005")
    wide = waits(colleague, "wide", "env-001")
    select = {"gpus_per_node": 8, "nodes": 1, "gpu_types": ["A100"]}
    Task.objects.filter(pk=wide).update(select=select)
    viewer.lang = "en"
    found = viewer.get(f"/training-tasks/{wide}/queue").data
    assert [ahead["taskId"] for ahead in found["after"]] == [holder]
    early, begins, late = (datetime.fromisoformat(found[name]) for name in ("early", "begins", "late"))
    assert early < begins < late
    assert timedelta(minutes=119) < begins - now() < timedelta(minutes=121), "as the other did"
    [fewer] = [one for one in found["sooner"] if one["code"] == "SOONER_FEWER_GPUS"]
    assert "the task starts now" in fewer["message"]
    [finding] = viewer.get(f"/training-tasks/{wide}/diagnosis").data["findings"]
    assert fewer["message"] in [evidence["message"] for evidence in finding["evidence"]]
    change = next(action for action in finding["actions"] if action["code"] == "CHANGE_FIELD")
    assert change["params"]["field"].startswith("distributedConfig.select")
    [item] = viewer.get("/queue").data["items"]
    assert (item["asks"]["gpus"], item["asks"]["text"]) == (8, "environments: 1, GPUs: 8 (A100)")


def test_one_forecast_is_shared_until_the_next_scheduling_pass(
    colleague: Api, viewer: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "MAX_AGE", timedelta(minutes=1))
    outlook.clear_cache()
    waits(colleague, "first", "env-001")
    assert order(viewer) == ["first"]
    waits(colleague, "second", "env-002")
    assert order(colleague) == ["first"], "as it was looked at last"
    outlook.clear_cache()
    assert order(colleague) == ["first", "second"]


# --- moving ---


@pytest.fixture
def three(colleague: Api) -> list[str]:
    return [waits(colleague, name, "env-001") for name in ("a", "b", "c")]


def test_a_maintainer_moves_a_task_before_another_one(owner: Api, viewer: Api, three: list[str]) -> None:
    a, b, c = three
    found = owner.post(f"/training-tasks/{c}/move", {"before": b}).data
    assert (found["taskId"], found["number"], found["of"]) == (c, 2, 3)
    assert order(viewer) == ["a", "c", "b"]
    owner.post(f"/training-tasks/{b}/move", {"before": a})
    assert order(viewer) == ["b", "a", "c"]
    owner.post(f"/training-tasks/{b}/move", {"before": None})
    assert order(viewer) == ["a", "c", "b"]
    events = list(Event.objects.filter(code="MOVED_IN_QUEUE").order_by("pk").values_list("task", "params"))
    assert events == [(c, {"by": "owner", "before": "b"}), (b, {"by": "owner", "before": "a"}), (b, {"by": "owner"})]
    assert AuditEvent.objects.filter(action="task.move", target=c).get().data == {"before": b}


def test_ranks_in_the_queue_are_renumbered_when_too_close(owner: Api, viewer: Api, three: list[str]) -> None:
    a, b, c = three
    Task.objects.filter(pk__in=three).update(place=1000.0)
    ahead, behind = sorted((a, b))
    owner.post(f"/training-tasks/{c}/move", {"before": behind})
    names = dict(Task.objects.values_list("pk", "name"))
    assert order(viewer) == [names[ahead], "c", names[behind]]


def test_only_maintainers_move_tasks_and_only_within_project_and_class(
    owner: Api, colleague: Api, viewer: Api, three: list[str], dataset: Dataset, model: Model
) -> None:
    a, b, c = three
    path = f"/training-tasks/{c}/move"
    assert colleague.post(path, {"before": a}).error == "FORBIDDEN"
    assert viewer.post(path, {"before": a}).error == "FORBIDDEN"
    assert owner.post(path).problems == {"before": "FIELD_REQUIRED"}
    assert owner.post(path, {"before": c}).problems == {"before": "MOVE_BEFORE_ITSELF"}
    assert owner.post(path, {"before": "task-none"}).problems == {"before": "MOVE_TO_OTHERS"}
    Task.objects.filter(pk=b).update(priority=-1)
    assert owner.post(path, {"before": b}).problems == {"before": "MOVE_TO_OTHERS"}
    Task.objects.filter(pk=c).update(state=TaskState.STARTING, in_line_at=None)
    refused = owner.post(path, {"before": a})
    assert (refused.status, refused.error) == (409, "NOT_IN_QUEUE")
    assert Task.objects.filter(place__isnull=False).count() == 0


# --- the timeline ---


def spans(api: Api, environment: str, **query: Any) -> list[tuple[Any, ...]]:
    found = {one["id"]: one for one in api.get("/environments/timeline", **query).data["environments"]}
    return [(one["kind"], one["taskId"], one["name"], one["sure"]) for one in found[environment]["spans"]]


def test_the_timeline_shows_past_present_and_planned_holders(
    colleague: Api, viewer: Api, stranger: Api, project: Project, other_project: Project
) -> None:
    moment = now()
    past, holder = waits(colleague, "past", "env-001"), waits(colleague, "holder", "env-001", maxRunSeconds=3600)
    mark_running(past, "env-002")
    mark_running(holder, "env-001")
    for key, since, task in (("env-001", 5, past), ("env-001", 30, past), ("env-002", 0, past)):
        Usage.objects.create(
            task=task, task_name="past", kind="training", project=project, owner="colleague", environment_id=key,
            environment_name=key, zone="z", gpus=2, since=moment - timedelta(hours=since) + timedelta(seconds=1),
            until=moment - timedelta(hours=since) + timedelta(minutes=1),
        )  # fmt: skip
    after = Reservation.objects.create(
        project=other_project, begins_at=moment + timedelta(hours=5), ends_at=moment + timedelta(hours=6),
        created_at=moment,
    )  # fmt: skip
    repair = Reservation.objects.create(
        begins_at=moment + timedelta(hours=7), ends_at=moment + timedelta(hours=8), created_at=moment, note="new disks"
    )
    for one in (after, repair):
        one.environments.add("env-001")
    free = waits(colleague, "free", "env-003")
    assert spans(viewer, "env-001") == [
        ("held", past, "past", True), ("held", holder, "holder", True), ("reserved", None, "", True),
        ("maintenance", None, "new disks", True),
    ]  # fmt: skip
    assert spans(viewer, "env-002") == [("held", past, "past", False)], "what goes on is told once"
    assert spans(viewer, "env-003") == [("next", free, "free", False)]
    assert stranger.get("/environments/timeline").data["environments"] == []
    DevEnvironment.objects.filter(pk="env-001").update(shared=True)
    assert spans(stranger, "env-001")[:3] == [
        ("held", None, "", True), ("held", None, "", True), ("reserved", None, "two", True),
    ]  # fmt: skip
    assert Api().get("/environments/timeline").error == "NOT_AUTHENTICATED"


def test_a_timeline_needs_a_valid_interval(viewer: Api) -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    ask = {"from": late, "to": early}
    assert viewer.get("/environments/timeline", **ask).problems == {"to": "TIMES_BACKWARDS"}
    ask = {"from": early, "to": "2026-12-01T00:00:00Z"}
    assert viewer.get("/environments/timeline", **ask).problems == {"to": "TIMELINE_TOO_LONG"}
    found = viewer.get("/environments/timeline", **{"from": early}).data["environments"]
    assert len(found) == 5
    assert all(one.keys() == {"id", "name", "zone", "gpuType", "gpuCount", "spans"} for one in found)
    assert viewer.get("/environments/timeline", project="project-two").data["environments"] == []


def test_dates_beyond_the_calendar_are_refused(colleague: Api) -> None:
    for at in ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"):
        assert colleague.get("/environments/timeline", **{"from": at}).status in (200, 400)
