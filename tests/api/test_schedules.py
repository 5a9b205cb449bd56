"""Schedules: who may make, see, change and delete them, and what is refused."""

from datetime import timedelta

import pytest

from apps.accounts.models import AuditEvent, Membership, Role
from apps.common.clock import now
from apps.templates import schedule_pass
from apps.templates.models import RunOutcome, Schedule, ScheduleRun
from apps.templates.services import schedules
from apps.training.models import Task
from tests.api.conftest import make_user
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

ONE = "project-one"
SINGLE = changed(distributedConfig=None, environmentIds=["env-001"])
BODY = {"name": "nightly", "projectId": ONE, "request": SINGLE, "cron": "30 2 * * *", "zone": "Europe/Berlin"}


@pytest.fixture
def schedule(colleague):
    return colleague.post("/schedules", BODY).data["id"]


def test_members_make_schedules_and_viewers_read_them(owner, colleague, viewer, stranger, anonymous, schedule):
    for user in (owner, colleague, viewer):
        shown = user.get(f"/schedules/{schedule}").data
        assert (shown["owner"], shown["enabled"], shown["missed"], shown["overlap"]) == (
            "colleague", True, "last", "skip",
        )  # fmt: skip
        assert shown["mayChange"] is (user is not viewer)
        assert user.get("/schedules", project=ONE, search="night").ids == [schedule]
        assert user.get(f"/schedules/{schedule}/runs").data["items"] == []
    assert shown["nextAt"] > now().isoformat()
    assert stranger.get("/schedules").ids == []
    assert stranger.get(f"/schedules/{schedule}").error == "NOT_FOUND"
    assert stranger.get(f"/schedules/{schedule}/runs").error == "NOT_FOUND"
    assert anonymous.get("/schedules").error == "NOT_AUTHENTICATED"
    assert viewer.post("/schedules", {**BODY, "name": "mine"}).error == "FORBIDDEN"
    assert stranger.post("/schedules", BODY).problems == {"projectId": "PROJECT_UNKNOWN"}
    assert colleague.post("/schedules", BODY).error == "SCHEDULE_NAME_TAKEN"


def test_the_next_moments_of_an_expression_are_shown(viewer, anonymous):
    moments = viewer.get("/schedules/moments", cron="0 6 * * MON", zone="Asia/Shanghai").data["moments"]
    assert len(moments) == 5
    assert all(moment.endswith("T22:00:00Z") for moment in moments)
    assert anonymous.get("/schedules/moments", cron="0 6 * * *").error == "NOT_AUTHENTICATED"
    assert viewer.get("/schedules/moments", cron="0 6 * *", zone="Mars/Base").problems == {
        "zone": "TIMEZONE_UNKNOWN", "cron": "CRON_FIELDS",
    }  # fmt: skip


REFUSED = [
    ({"cron": "61 * * * *"}, "cron", "CRON_INVALID"),
    ({"cron": "* * * * * *"}, "cron", "CRON_FIELDS"),
    ({"zone": "Berlin"}, "zone", "TIMEZONE_UNKNOWN"),
    ({"request": None}, "templateId", "SCHEDULE_NEEDS_ONE_SOURCE"),
    ({"templateId": "saved-unknown"}, "templateId", "TEMPLATE_UNKNOWN"),
    ({"request": {**SINGLE, "environmentIds": ["env-unknown"]}}, "request.environmentIds.0", None),
    ({"request": {**SINGLE, "taskName": ""}}, "request.taskName", "NAME_REQUIRED"),
    ({"missed": "some"}, "missed", "FIELD_CHOICE"),
]


@pytest.mark.parametrize(("changes", "field", "code"), REFUSED)
def test_what_could_never_run_is_refused(colleague, changes, field, code):
    answer = colleague.post("/schedules", {**BODY, **changes})
    assert answer.status == 400
    assert any(name.startswith(field.removesuffix(".0")) for name in answer.problems), answer.problems
    assert code in (None, answer.problems.get(field))
    assert not Schedule.objects.exists()


def test_its_owner_and_maintainers_change_it_and_whoever_changes_the_request_owns_it(
    owner, colleague, viewer, stranger, schedule
):
    path = f"/schedules/{schedule}"
    assert viewer.patch(path, {"enabled": False}).error == "FORBIDDEN"
    assert stranger.patch(path, {"enabled": False}).error == "NOT_FOUND"
    other = make_user("other")
    Membership.objects.create(project_id=ONE, user=other, role=Role.MEMBER)
    paused = owner.patch(path, {"enabled": False}).data
    assert (paused["enabled"], paused["nextAt"], paused["owner"]) == (False, None, "colleague")
    resumed = colleague.patch(path, {"enabled": True, "cron": "0 4 * * *"}).data
    assert (resumed["owner"], bool(resumed["nextAt"])) == ("colleague", True)
    assert owner.patch(path, {"request": {**SINGLE, "priority": "low"}}).data["owner"] == "owner"
    assert colleague.patch(path, {"enabled": False}).error == "FORBIDDEN", "it is not theirs any more"
    assert viewer.delete(path).error == "FORBIDDEN"
    assert owner.delete(path).status == 200
    actions = AuditEvent.objects.filter(target=schedule).order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["schedule.create", *["schedule.change"] * 3, "schedule.delete"]


def test_who_enables_a_schedule_whose_owner_has_left_is_its_owner(owner, colleague, schedule):
    path = f"/schedules/{schedule}"
    Membership.objects.filter(user=colleague.user).delete()
    Schedule.objects.update(enabled=False, stopped="SCHEDULE_OWNER_LEFT", stopped_params={"owner": "colleague"})
    assert colleague.patch(path, {"enabled": True}).error == "NOT_FOUND"
    assert owner.patch(path, {"name": "weekly"}).data["owner"] == "colleague"
    taken = owner.patch(path, {"enabled": True}).data
    assert (taken["owner"], taken["enabled"], bool(taken["nextAt"])) == ("owner", True, True)


def test_a_schedule_runs_a_template_with_values(colleague, owner):
    request = {**SINGLE, "taskName": "{{name}}"}
    parameters = [{"name": "name", "type": "string"}]
    saved = {"name": "t", "projectId": ONE, "request": request, "parameters": parameters}
    template = colleague.post("/saved-templates", saved).data["id"]
    body = {**BODY, "request": None, "templateId": template}
    assert colleague.post("/schedules", {**body, "cron": "x"}).problems == {
        "values.name": "PARAMETER_REQUIRED", "cron": "CRON_FIELDS",
    }  # fmt: skip
    shown = colleague.post("/schedules", {**body, "values": {"name": "x"}}).data
    assert (shown["templateId"], shown["templateName"], shown["values"]) == (template, "t", {"name": "x"})
    assert owner.delete(f"/saved-templates/{template}").error == "TEMPLATE_IN_USE"
    assert colleague.delete(f"/schedules/{shown['id']}").status == 200
    assert owner.delete(f"/saved-templates/{template}").status == 200


def test_its_history_says_what_became_of_each_moment(viewer, colleague, schedule):
    row, moment = Schedule.objects.get(), now()
    params = {"task": "task-x"}
    for number, (outcome, code) in enumerate([("created", ""), ("skipped", "SCHEDULE_OVERLAP"), ("pending", "")]):
        ScheduleRun.objects.create(
            schedule=row, owner=row.owner, moment=moment - timedelta(hours=number), outcome=outcome, code=code,
            params=params if code else {}, task="task-x" if outcome == "created" else "", decided_at=moment,
        )  # fmt: skip
    items = viewer.get(f"/schedules/{schedule}/runs").data["items"]
    assert [(one["outcome"], one["taskId"]) for one in items] == [
        ("created", "task-x"), ("skipped", None), ("pending", None)
    ]  # fmt: skip
    assert "task-x" in items[1]["reason"]["message"]
    assert len(viewer.get(f"/schedules/{schedule}/runs", outcome="skipped").data["items"]) == 1
    colleague.patch(f"/schedules/{schedule}", {"enabled": False})
    assert ScheduleRun.objects.filter(outcome=RunOutcome.SKIPPED, code="SCHEDULE_PAUSED").count() == 1
    assert not Task.objects.exists()


def test_its_owner_and_maintainers_run_it_now_with_the_owners_rights(
    owner, colleague, viewer, stranger, anonymous, schedule
):
    path = f"/schedules/{schedule}/runs"
    assert viewer.post(path).error == "FORBIDDEN"
    assert stranger.post(path).error == "NOT_FOUND"
    assert anonymous.post(path).error == "NOT_AUTHENTICATED"
    answer = owner.post(path)
    assert (answer.status, answer.data["outcome"], answer.data["taskId"]) == (201, "pending", None)
    run = ScheduleRun.objects.get()
    assert run.owner.username == "colleague"
    assert schedule_pass.run_due_schedules() == 1
    task = Task.objects.get()
    assert task.owner.username == "colleague"
    shown = colleague.get(f"/schedules/{schedule}").data
    assert (shown["lastTaskId"], bool(shown["nextAt"])) == (task.pk, True)
    assert schedule_pass.run_due_schedules() == 0
    assert colleague.post(path).status == 201
    schedule_pass.run_due_schedules()
    items = viewer.get(path).data["items"]
    assert [(one["outcome"], (one["reason"] or {}).get("code")) for one in items] == [
        ("skipped", "SCHEDULE_OVERLAP"), ("created", None),
    ]  # fmt: skip


def test_a_schedule_that_is_paused_or_has_too_much_waiting_is_not_run_now(colleague, schedule):
    path = f"/schedules/{schedule}/runs"
    for _number in range(schedules.MAX_QUEUED):
        assert colleague.post(path).status == 201
    assert colleague.post(path).error == "SCHEDULE_RUNS_WAIT"
    colleague.patch(f"/schedules/{schedule}", {"enabled": False})
    answer = colleague.post(path)
    assert (answer.status, answer.error) == (409, "SCHEDULE_NOT_RUNNING")


def test_a_template_knows_its_last_use_and_its_schedules(colleague, schedule):
    saved = {"name": "t", "projectId": ONE, "request": {**SINGLE, "taskName": "{{name}}"}}
    saved["parameters"] = [{"name": "name", "type": "string", "default": "x"}]
    template = colleague.post("/saved-templates", saved).data["id"]
    shown = colleague.get(f"/saved-templates/{template}").data
    assert (shown["lastUsedAt"], shown["lastTaskId"]) == (None, None)
    task = colleague.post(f"/saved-templates/{template}/tasks").data["taskId"]
    assert colleague.get(f"/saved-templates/{template}").data["lastTaskId"] == task
    body = {**BODY, "name": "by template", "request": None, "templateId": template}
    made = colleague.post("/schedules", body).data["id"]
    assert colleague.get("/schedules", template=template).ids == [made]
    colleague.post(f"/schedules/{made}/runs")
    schedule_pass.run_due_schedules()
    shown = colleague.get(f"/saved-templates/{template}").data
    assert shown["lastTaskId"] == colleague.get(f"/schedules/{made}").data["lastTaskId"] != task
    assert shown["lastUsedAt"]
