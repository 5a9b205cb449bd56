"""What people are told of tasks and environments: as often as there is something new, and as seldom."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.clusters import notifications as environments
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus, Lease
from apps.common.clock import now
from apps.notices import fanout
from apps.notices.models import Channel, Delivery, Incident, Item, Rule
from apps.notices.sender import message
from apps.notices.services.incidents import open_incident, resolve_incidents
from apps.training.core import findings, notifications, transitions
from apps.training.models import Task
from apps.training.states import TaskState
from fermi.diagnosis import Finding, Level
from fermi.diagnosis.hangs import HANG
from fermi.diagnosis.stragglers import STRAGGLER

pytestmark = pytest.mark.database

WRITES = ("INSERT", "UPDATE", "DELETE")


class Clock:
    """`minutes`: for how long the first task has waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = self.moment = now()
        monkeypatch.setattr(notifications, "now", lambda: self.moment)

    def look(self, minutes: float) -> None:
        self.moment = self.began + timedelta(minutes=minutes)
        notifications.notify_long_waits()
        fanout.spread_incidents()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def waiting(task: Task, clock: Clock) -> Task:
    Task.objects.filter(pk=task.pk).update(
        state=TaskState.QUEUED, in_line_at=clock.began, reason="ENVIRONMENTS_BUSY",
        reason_params={"environments": "a", "holders": "b"},
    )  # fmt: skip
    task.refresh_from_db()
    return task


def copies(task: Task, count: int) -> None:
    for number in range(count):
        task.pk = f"task-{number}"
        task.save(force_insert=True)


def rule(name: str, *, user: User | None = None, **fields: Any) -> Channel:
    """Its channel."""
    made = Channel.objects.create(
        name=name, kind="webhook", address="", shown="", language="en", created_at=now(), user=user
    )
    Rule.objects.create(name=name, user=user, created_at=now(), **fields).channels.add(made)
    return made


def list_recipients() -> list[str]:
    return list(Delivery.objects.order_by("created_at", "pk").values_list("channel__name", flat=True))


def test_a_waiting_task_is_notified_once(waiting: Task, clock: Clock) -> None:
    clock.look(59)
    assert not Incident.objects.exists()
    clock.look(60)
    with CaptureQueriesContext(connection) as seen:
        for minutes in range(61, 70):
            clock.look(minutes)
    assert [each["sql"] for each in seen if each["sql"].startswith(WRITES)] == []
    row = Incident.objects.get()
    assert (row.times, row.due_at, row.over_at) == (1, None, None)
    assert message.build_message(row, "opened", "en").title == "Task t has been waiting for 1 h"
    assert Item.objects.get().user == waiting.owner


def test_many_waiting_tasks_are_all_notified(waiting: Task, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "MAX_NOTIFIED_PER_PASS", 2)
    copies(waiting, 4)
    for _ in range(3):
        clock.look(61)
    clock.look(62)
    assert Incident.objects.filter(over_at=None, times=1).count() == Incident.objects.count() == 5


def test_notification_queries_do_not_grow_with_tasks(waiting: Task, clock: Clock) -> None:
    copies(waiting, 20)
    clock.look(61)
    with CaptureQueriesContext(connection) as seen:
        notifications.notify_long_waits()
    assert len(seen) == 3  # the rules, what was told, who waits


def test_a_rule_of_ten_minutes_fires_at_ten_minutes_for_its_users(waiting: Task, clock: Clock) -> None:
    rule("ten", user=waiting.owner, waits_seconds=600)
    rule("an hour", user=waiting.owner)
    rule("two hours", waits_seconds=7200, kinds=["task_waits"])
    rule("of another", user=User.objects.create_user("bob"), waits_seconds=60)
    rule("of failures", waits_seconds=60, kinds=["task_failed"])
    heard = {}
    for minutes in (1, 9, 10, 11, 59, 60, 61, 119, 120, 500):
        clock.look(minutes)
        heard[minutes] = len(list_recipients())
    assert heard == {1: 0, 9: 0, 10: 1, 11: 1, 59: 1, 60: 2, 61: 2, 119: 2, 120: 3, 500: 3}
    assert list_recipients() == ["ten", "an hour", "two hours"]
    assert Incident.objects.get().times == 1


def test_waiting_below_an_hour_is_shown_in_minutes_without_the_inbox(waiting: Task, clock: Clock) -> None:
    rule("ten", waits_seconds=600)
    clock.look(10)
    row = Incident.objects.get()
    assert not Item.objects.exists()
    assert message.build_message(row, "opened", "en").title == "Task t has been waiting for 10 min"
    assert message.build_message(row, "opened", "zh").title == "任务 t 已等待 10 分钟"
    clock.look(60)
    assert Item.objects.get().incident == row


@pytest.mark.parametrize("fields", [
    {"in_line_at": None}, {"state": TaskState.STARTING, "in_line_at": None}, {"paused_at": now()},
])  # fmt: skip
def test_a_task_that_left_the_queue_is_resolved(waiting: Task, clock: Clock, fields: Any) -> None:
    clock.look(61)
    Task.objects.filter(pk=waiting.pk).update(**fields)
    clock.look(62)
    assert Incident.objects.get().over_at


def test_a_requeued_task_counts_its_waiting_from_zero(waiting: Task, clock: Clock) -> None:
    clock.look(300)
    Task.objects.filter(pk=waiting.pk).update(in_line_at=clock.moment)
    clock.look(301)
    assert Incident.objects.get().over_at
    clock.look(361)
    assert Incident.objects.filter(over_at=None).count() == 1


def test_the_end_of_a_task_resolves_its_incidents_in_one_update(task: Task) -> None:
    for kind in ("task_hung", "task_waits", "task_restarted"):
        open_incident(kind, task.pk, "NOTICE_TEST", {})
    with CaptureQueriesContext(connection) as seen:
        transitions.change_state(task, TaskState.FAILED, "RANK_FAILED", {"rank": 3, "node": "dgx-02", "exitCode": 1})
    asked = [each["sql"] for each in seen if "notices_incident" in each["sql"]]
    assert [sql.split()[0] for sql in asked] == ["UPDATE", "INSERT", "UPDATE"]  # decisions/0054
    assert list(Incident.objects.filter(over_at=None).values_list("kind", flat=True)) == ["task_failed"]


def test_starting_a_task_makes_no_notification_query(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(state=TaskState.QUEUED)
    task.refresh_from_db()
    with CaptureQueriesContext(connection) as seen:
        transitions.change_state(task, TaskState.STARTING)
    assert [each["sql"] for each in seen if "notices_" in each["sql"]] == []


def test_an_open_incident_keeps_its_worst_level(db: None) -> None:
    for level in ("warn", "fail", "info"):
        open_incident("task_hung", "task-x", "NOTICE_TEST", {}, level=level)
    row = Incident.objects.get()
    assert (row.level, row.times) == ("fail", 3)


def test_resolving_kinds_leaves_other_kinds_open(db: None) -> None:
    for kind in ("task_hung", "task_waits", "task_failed"):
        open_incident(kind, "task-x", "NOTICE_TEST", {})
    resolve_incidents("task-x", "task_hung", "task_waits")
    assert list(Incident.objects.filter(over_at=None).values_list("kind", flat=True)) == ["task_failed"]


def test_the_end_of_another_finding_does_not_query_hangs(task: Task) -> None:
    findings.record_findings(
        task.pk, 1, [Finding(STRAGGLER, Level.WARN, {"rank": 0, "node": "gn5", "own": 1, "others": 40})]
    )
    findings.record_findings(task.pk, 1, [Finding(HANG, Level.FAIL, {"ranks": "1", "count": 1})])
    assert Incident.objects.filter(kind="task_hung", over_at=None).exists()
    with CaptureQueriesContext(connection) as seen:
        findings.resolve_findings(task.pk, 1, STRAGGLER)
    assert [each["sql"] for each in seen if each["sql"].startswith("SELECT")] == []
    findings.resolve_findings(task.pk, 1, HANG)
    assert not Incident.objects.filter(kind="task_hung", over_at=None).exists()


# Environments


@pytest.fixture
def lost(task: Task) -> list[str]:
    zone = AvailabilityZone.objects.create(name="here")
    cluster = Cluster.objects.get()
    rows = [
        DevEnvironment(
            pk=f"env-{number}", name=f"e{number}", project=task.project, cluster=cluster, zone=zone,
            status=EnvironmentStatus.UNHEALTHY if number else EnvironmentStatus.STOPPED,
        )
        for number in range(5)
    ]  # fmt: skip
    DevEnvironment.objects.bulk_create(rows)
    Lease.objects.create(environment_id="env-0", holder=task.pk)
    return [row.pk for row in rows]


def test_each_lost_environment_is_notified_once(lost: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "MAX_PER_PASS", 2)
    for _ in range(4):
        environments.notify_lost_environments()
    going_on = Incident.objects.filter(kind="node_lost", over_at=None, times=1)
    assert sorted(going_on.values_list("key", flat=True)) == lost
    assert Incident.objects.count() == 5
    with CaptureQueriesContext(connection) as seen:
        environments.notify_lost_environments()
    assert len(seen) == 2


def test_a_returned_environment_is_resolved_and_others_stay_open(lost: list[str]) -> None:
    environments.notify_lost_environments()
    DevEnvironment.objects.filter(pk="env-3").update(status=EnvironmentStatus.RUNNING)
    Lease.objects.all().delete()
    environments.notify_lost_environments()
    assert sorted(Incident.objects.exclude(over_at=None).values_list("key", flat=True)) == ["env-0", "env-3"]
