"""The bell, channels and rules: whose they are, who may see and change them."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from apps.accounts.models import AuditEvent, User
from apps.notices import delivery, fanout, groups
from apps.notices.kinds import INCIDENT_KINDS
from apps.notices.models import Channel, Delivery, Item, Rule
from apps.notices.sender.process import SenderProcess
from apps.notices.services.incidents import open_incident, resolve_incidents
from apps.training.core import transitions
from apps.training.models import Task
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.apps.notice_servers import one_sender

pytestmark = pytest.mark.database

HOOK = {"scope": "me", "name": "my hook", "kind": "webhook", "address": "https://hooks.example.org/secret-path"}


@pytest.fixture(scope="module", autouse=True)
def sender() -> Iterator[None]:
    with one_sender():
        yield


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.NOTICE_HOSTS = ["hooks.example.org"]


@pytest.mark.usefixtures("environments", "dataset", "model")
def test_the_owner_of_a_failed_task_is_notified(colleague: Api, owner: Api, stranger: Api) -> None:
    task = Task.objects.get(pk=colleague.post("/training-tasks", changed()).data["taskId"])
    for state in (TaskState.QUEUED, TaskState.STARTING, TaskState.RUNNING):
        transitions.change_state(task, state)
    transitions.change_state(task, TaskState.FAILED, "RANK_FAILED", {"rank": 3, "node": "dgx-02", "exitCode": 1})
    fanout.spread_incidents()
    told = colleague.get("/inbox").data
    [item] = told["items"]
    assert (item["kind"], item["level"], item["path"], told["unread"]) == (
        "task_failed",
        "fail",
        f"/training/{task.pk}",
        1,
    )
    assert task.name in item["title"]
    assert item["body"]
    english = Api(colleague.user, "en").get("/inbox").data["items"][0]
    assert english["title"] == f"Task {task.name} failed"
    assert owner.get("/inbox").data == stranger.get("/inbox").data
    assert owner.get("/inbox").data["items"] == []
    assert stranger.post("/inbox/read", {"ids": [item["id"]]}).data == {"unread": 0}
    assert colleague.get("/inbox", unread="true").data["total"] == 1
    assert colleague.post("/inbox/read", {"ids": [item["id"]]}).data == {"unread": 0}
    assert colleague.get("/inbox", unread="true").data["total"] == 0
    assert colleague.get("/inbox").data["items"][0]["readAt"]


def test_notifications_of_many_tasks_in_a_day_are_one_entry(colleague: Api, project: Any) -> None:
    assert colleague.user
    owned = {"project": project.pk, "owner": colleague.user.pk}
    why = {"code": "COMPLETED", "params": {}}
    for number in range(7):
        open_incident(
            "task_ended", f"task-{number}", "NOTICE_TASK_ENDED", {"name": f"sweep-{number}", "why": why}, **owned
        )
    for number in range(2):
        open_incident(
            "task_failed", f"task-{number}", "NOTICE_TASK_FAILED", {"name": f"bad-{number}", "why": why}, **owned
        )
    open_incident("task_failed", "task-9", "NOTICE_TASK_FAILED", {"name": "bad-9", "why": why}, **owned)
    fanout.spread_incidents()
    assert colleague.get("/inbox").data["unread"] == colleague.get("/inbox").data["total"] == 10
    told = Api(colleague.user, "en").get("/inbox", grouped="true", pageSize=1, page=2).data
    assert (told["total"], told["unread"], told["pageSize"]) == (2, 2, 1)
    [ended] = [item for page in (1, 2) for item in Api(colleague.user, "en").get(
        "/inbox", grouped="true", pageSize=1, page=page).data["items"] if item["kind"] == "task_ended"]  # fmt: skip
    assert (ended["title"], len(ended["ids"]), ended["path"]) == (
        "7 tasks ended", 7, f"/training?owner={colleague.user.username}",
    )  # fmt: skip
    assert "(+2)" in ended["body"]
    assert "sweep-" in ended["body"]
    assert colleague.post("/inbox/read", {"ids": ended["ids"]}).data == {"unread": 3}
    assert colleague.get("/inbox", grouped="true", unread="true").data["unread"] == 1
    again = colleague.get("/inbox", grouped="true").data
    assert (again["total"], again["unread"]) == (2, 1), "what is read is shown all the same"


def test_an_entry_without_remaining_items_is_left_out(
    colleague: Api, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert colleague.user
    for kind in ("task_ended", "task_failed"):
        why = {"code": "COMPLETED", "params": {}}
        open_incident(kind, "task-1", f"NOTICE_{kind.upper()}", {"name": "one", "why": why}, project=project.pk,
             owner=colleague.user.pk)  # fmt: skip
    fanout.spread_incidents()
    group_items = groups._group_items

    def removed(rows: Any) -> Any:
        found = group_items(rows)
        Item.objects.filter(incident__kind="task_failed").delete()
        return found

    monkeypatch.setattr(groups, "_group_items", removed)
    answer = colleague.get("/inbox", grouped="true")
    assert [item["kind"] for item in answer.data["items"]] == ["task_ended"]


def test_administrators_are_notified_of_nodes_and_maintainers_of_their_own(
    owner: Api, colleague: Api, admin: Api, project: Any
) -> None:
    params = {"environment": "dgx-02", "host": "dgx-02", "cluster": "c"}
    open_incident("node_lost", "env-9", "NOTICE_NODE_LOST", params, project=project.pk)
    fanout.spread_incidents()
    assert [each.get("/inbox").data["unread"] for each in (owner, colleague, admin)] == [1, 0, 1]
    resolve_incidents("env-9", "node_lost")
    fanout.spread_incidents()
    assert owner.get("/inbox").data["items"][0]["overAt"]


def test_a_channel_belongs_to_its_owner_and_hides_its_address(colleague: Api, owner: Api, stranger: Api) -> None:
    made = colleague.post("/notice-channels", HOOK).data
    assert made["secret"].startswith("fermi_whsec_")
    assert made["address"] == "https://hooks.example.org/…"
    path = f"/notice-channels/{made['id']}"
    listed = colleague.get("/notice-channels").data["items"]
    assert "secret" not in listed[0]
    assert (
        "secret-path"
        not in f"{listed}{made | {'secret': ''}}{Channel.objects.get().address}{list(AuditEvent.objects.values())}"
    )
    for other in (owner, stranger):
        assert other.get("/notice-channels").data["items"] == []
        for answer in (other.patch(path, {"name": "x"}), other.delete(path), other.post(f"{path}/test"),
                       other.get(f"{path}/deliveries")):  # fmt: skip
            assert answer.status == 404
    assert colleague.patch(path, {"name": "renamed", "enabled": False}).data["enabled"] is False
    assert colleague.delete(path).status == 200
    assert not Channel.objects.exists()


def test_project_channels_belong_to_maintainers(owner: Api, colleague: Api, stranger: Api, project: Any) -> None:
    mine = {**HOOK, "scope": "project", "projectId": project.pk}
    assert colleague.post("/notice-channels", mine).status == 403
    assert stranger.post("/notice-channels", mine).status == 404
    made = owner.post("/notice-channels", mine).data
    assert colleague.get("/notice-channels").ids == [made["id"]]
    assert colleague.patch(f"/notice-channels/{made['id']}", {"name": "x"}).status == 403
    rule = {"scope": "project", "projectId": project.pk, "name": "failures", "channels": [made["id"]], "level": "fail"}
    assert colleague.post("/notice-rules", rule).status == 403
    key = owner.post("/notice-rules", rule).data["id"]
    assert stranger.delete(f"/notice-rules/{key}").status == 404
    assert owner.patch(f"/notice-rules/{key}", {"kinds": ["task_failed"], "restarts": 3}).data["restarts"] == 3
    assert owner.delete(f"/notice-rules/{key}").status == 200


def test_platform_channels_belong_to_administrators(owner: Api, admin: Api) -> None:
    assert owner.post("/notice-channels", {**HOOK, "scope": "platform"}).status == 403
    made = admin.post("/notice-channels", {**HOOK, "scope": "platform"}).data
    assert (made["scope"], owner.get("/notice-channels").ids) == ("platform", [])


@pytest.mark.parametrize(("address", "error"), [
    ("https://elsewhere.example.net/x", "CHANNEL_HOST_NOT_ALLOWED"), ("http://127.0.0.1/x", "CHANNEL_HOST_NOT_ALLOWED"),
    ("ftp://hooks.example.org/", "CHANNEL_ADDRESS_INVALID"), ("nonsense", "CHANNEL_ADDRESS_INVALID"),
    ("http://[::1", "CHANNEL_ADDRESS_INVALID"), ("https://hooks.example.org:99999/", "CHANNEL_ADDRESS_INVALID"),
    ("https://hooks.example.org@evil.net/", "CHANNEL_HOST_NOT_ALLOWED"),
])  # fmt: skip
def test_a_webhook_to_a_forbidden_address_is_refused(colleague: Api, address: str, error: str) -> None:
    answer = colleague.post("/notice-channels", {**HOOK, "address": address})
    assert (answer.status, answer.problems) == (400, {"address": error})


@pytest.mark.parametrize(("address", "error"), [
    ("tgram://a", "CHANNEL_ADDRESS_INVALID"), ("mailto://", "CHANNEL_ADDRESS_INVALID"),
    ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/x", "CHANNEL_HOST_NOT_ALLOWED"),
    ("dbus://", "CHANNEL_SCHEME_UNKNOWN"), ("syslog://", "CHANNEL_SCHEME_UNKNOWN"),
    ("mqtt://x", "CHANNEL_SCHEME_UNKNOWN"), ("x", "CHANNEL_SCHEME_UNKNOWN"),
    ("mailto://u:p@mail.internal?to=a@b.cc", "CHANNEL_HOST_NOT_ALLOWED"),
    ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ?template=/proc/kmsg", "CHANNEL_PARAMETER_NOT_ALLOWED"),
    ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ?%54emplate=file:///proc/kmsg",
     "CHANNEL_PARAMETER_NOT_ALLOWED"),
    ("mailto://u:p@hooks.example.org?to=a@b.cc&pgp=sign&pgpprv=/etc/shadow", "CHANNEL_PARAMETER_NOT_ALLOWED"),
    ("json://hooks.example.org?store=yes", "CHANNEL_PARAMETER_NOT_ALLOWED"),
    ("json://hooks.example.org?tz=../../../etc/passwd", "CHANNEL_PARAMETER_NOT_ALLOWED"),
])  # fmt: skip
def test_apprise_addresses_are_checked_in_the_same_way(colleague: Api, address: str, error: str) -> None:
    answer = colleague.post("/notice-channels", {**HOOK, "kind": "apprise", "address": address})
    assert (answer.status, answer.problems) == (400, {"address": error})


def test_a_test_message_reports_its_result(colleague: Api, settings: Any) -> None:
    made = colleague.post("/notice-channels", HOOK).data
    settings.NOTICE_HOSTS = []
    told = colleague.post(f"/notice-channels/{made['id']}/test").data
    assert (told["outcome"], told["what"]) == ("failed", "test")
    assert told["tries"][0]["error"]["code"] == "CHANNEL_HOST_REFUSED"
    assert "hooks.example.org" in told["tries"][0]["error"]["message"]
    assert colleague.get(f"/notice-channels/{made['id']}/deliveries").data["total"] == 1
    assert Delivery.objects.get().due_at is None


def test_a_busy_sender_refuses_instead_of_waiting(colleague: Api) -> None:
    made = colleague.post("/notice-channels", HOOK).data
    with SenderProcess(), SenderProcess(), mock.patch.object(delivery, "SenderProcess", SenderProcess):
        answer = colleague.post(f"/notice-channels/{made['id']}/test")
        assert (answer.status, answer.error) == (429, "CHANNEL_SENDERS_BUSY")
    assert not Delivery.objects.exists()


@pytest.mark.parametrize(("fields", "field", "error"), [
    ({"channels": ["channel-none"]}, "channels.0", "CHANNEL_UNKNOWN"),
    ({"timezone": "Mars/Base"}, "timezone", "TIMEZONE_UNKNOWN"), ({"quietFrom": 60}, "quietTo", "QUIET_HOURS_HALF"),
    ({"kinds": ["rain"]}, "kinds.0", "FIELD_CHOICE"), ({"restarts": 0}, "restarts", "FIELD_RANGE"),
])  # fmt: skip
def test_contradictory_rules_are_refused(colleague: Api, fields: Any, field: str, error: str) -> None:
    answer = colleague.post("/notice-rules", {"scope": "me", "name": "r", "channels": [], **fields})
    assert (answer.status, answer.problems) == (400, {field: error})
    assert not Rule.objects.exists()


@pytest.mark.parametrize(("lang", "title"), [("en", "a disk is nearly full"), ("zh", "磁盘将满")])
def test_kinds_are_listed_with_titles_in_the_readers_language(owner: Api, lang: str, title: str) -> None:
    owner.lang = lang
    listed = owner.get("/notice-kinds").data["items"]
    assert [one["kind"] for one in listed] == list(INCIDENT_KINDS)
    assert {one["level"] for one in listed} == {"info", "warn", "fail"}
    assert next(one["title"] for one in listed if one["kind"] == "disk_full") == title
    assert all(one["title"] and one["description"] for one in listed)


def test_a_rule_cannot_use_another_users_channel(colleague: Api, owner: Api) -> None:
    made = colleague.post("/notice-channels", HOOK).data
    answer = owner.post("/notice-rules", {"scope": "me", "name": "r", "channels": [made["id"]]})
    assert answer.problems == {"channels.0": "CHANNEL_UNKNOWN"}
    assert User.objects.count() >= 2
