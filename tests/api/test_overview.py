"""The overview: what each person sees of the machines, the queue and failures, and all that needs somebody."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Project, User
from apps.clusters import services
from apps.clusters.models import Cluster, DevEnvironment, EnvironmentStatus, Lease
from apps.common import disks
from apps.common.clock import now
from apps.overview import failures, hourly_use
from apps.overview.failures import NodeRecord
from apps.overview.models import Hour
from apps.scheduling.models import Limits, Usage
from apps.scheduling.selectors import format_month
from apps.telemetry.writer import TelemetryWriter
from apps.training.core import outcomes
from apps.training.models import Attempt, Event, Finding, Node, Task
from apps.training.queue import node_health
from apps.training.states import TaskState
from fermi.jobs.errors import BackendError
from tests.api.conftest import Api

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments")]
LONG_AGO = timedelta(hours=2)


@pytest.fixture(autouse=True)
def enough_disk_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has: a disk that is nearly full is an alert, too."""
    monkeypatch.setattr(disks, "find_nearly_full", lambda folder: {})


@pytest.fixture(autouse=True)
def failures_looked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_health, "CACHE_SECONDS", -1.0)
    monkeypatch.setattr(failures, "STARTS_CACHE_SECONDS", -1.0)
    failures.clear_cache()


def a_task(project: Project, cluster: Cluster, key: str, state: TaskState = TaskState.RUNNING, **changes: Any) -> Task:
    since = now() - LONG_AGO
    ended = (
        {"ended_at": since, "due_at": None} if state in (TaskState.FAILED, TaskState.SUCCEEDED) else {"due_at": since}
    )
    owner = project.members.order_by("pk").first() or User.objects.earliest("pk")
    values: dict[str, Any] = {
        "id": key, "name": f"name of {key}", "project": project, "owner": owner, "cluster": cluster,
        "framework": "pytorch-ddp", "node_count": 1, "total_gpus": 2, "world_size": 2, "master": "env-001",
        "request": {}, "spec": {}, "summary": {}, "state": state, "state_since": since, "created_at": since, **ended,
    }  # fmt: skip
    return Task.objects.create(**{**values, **changes})


def lease_environments(task: Task, *environments: str) -> None:
    for number, key in enumerate(environments):
        Lease.objects.create(environment_id=key, holder=task.pk, since=now() - LONG_AGO)
        Node.objects.create(
            task=task, node_rank=number, environment_id=key, name=key, zone="z", gpu_type="A100", processes=2
        )


def failed_attempt(task: Task, number: int, outcome: str, **params: Any) -> None:
    at = now() - LONG_AGO
    Attempt.objects.create(
        task=task,
        number=number,
        master_port=1,
        created_at=at,
        ended_at=at,
        **outcomes.build_outcome_columns(outcome, params),
    )


def by_key(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in rows}


def test_gpus_are_counted_by_zone_type_project_and_user(
    project: Project, cluster: Cluster, colleague: Api, owner: Api, admin: Api, stranger: Api
) -> None:
    lease_environments(a_task(project, cluster, "task-a"), "env-001", "env-003")
    DevEnvironment.objects.filter(pk="env-002").update(cordoned=True)
    told = admin.get("/overview").data
    there = sum(DevEnvironment.objects.values_list("gpu_count", flat=True))
    gpus = told["gpus"]
    held = sum(DevEnvironment.objects.filter(pk__in=["env-001", "env-003"]).values_list("gpu_count", flat=True))
    out = sum(DevEnvironment.objects.filter(pk__in=["env-002", "env-004"]).values_list("gpu_count", flat=True))
    assert (gpus["total"], gpus["held"], gpus["outOfService"], gpus["free"]) == (there, held, out, there - held - out)
    assert (gpus["busy"], gpus["idle"], gpus["unknown"]) == (0, 0, held), "nothing has measured them"
    for rows in ("zones", "types"):
        assert sum(row["total"] for row in told[rows]) == there
    assert by_key(told["projects"])[project.pk]["held"] == held
    assert [(row["name"], row["held"]) for row in told["people"]] == [("colleague", held)]
    assert told["tasks"]["running"] == 1
    mine = colleague.get("/overview").data
    assert mine["gpus"] == gpus
    assert not mine["all"]
    nothing = stranger.get("/overview").data
    assert (nothing["gpus"]["total"], nothing["queue"]["total"], nothing["people"]) == (0, 0, [])
    assert stranger.get("/overview", project=project.pk).status == 404
    zone = told["zones"][0]
    assert owner.get("/overview", zone=zone["name"]).data["gpus"]["total"] == zone["total"]


def measure(environment: str, moment: datetime, seconds: float, **values: float) -> None:
    """As its machine told every five seconds until `moment`, `gpu_0=3` for the first GPU."""
    at = [moment.timestamp() - seconds]
    writer = TelemetryWriter(lambda: at[0])
    told = {name.replace("_0", ":0").replace("_1", ":1"): value for name, value in values.items()}
    while at[0] <= moment.timestamp():
        writer.put(f"env:{environment}", at[0], told)
        at[0] += 5
    at[0] += 120
    writer.flush()


def test_a_gpu_without_use_for_ten_minutes_is_idle_and_without_measurements_unknown(
    project: Project, cluster: Cluster, admin: Api
) -> None:
    lease_environments(a_task(project, cluster, "task-a"), "env-001", "env-002", "env-003")
    DevEnvironment.objects.update(
        created_at=now() - timedelta(hours=2)
    )  # the stretch may have begun in the hour before
    measure("env-001", now(), 700, gpu_0=3.0, gpu_1=90.0)
    measure("env-002", now(), 120, gpu_0=3.0)
    measure("env-005", now(), 700, gpu_0=0.0, **{"disk_used:/data": 95.0, "disk_total:/data": 100.0})
    told = admin.get("/overview").data
    held = told["gpus"]["held"]
    assert (told["gpus"]["busy"], told["gpus"]["idle"], told["gpus"]["unknown"]) == (1, 1, held - 2)
    listed = admin.get("/overview/attention", kind=["gpus_idle", "environment_disk"]).data["items"]
    assert [(item["kind"], item["subject"]["id"]) for item in listed] == [
        ("environment_disk", "env-005"), ("gpus_idle", "task-a"),
    ]  # fmt: skip
    assert "95" in listed[0]["message"]
    hourly_use.book_hours(now())
    booked = admin.get("/overview").data["utilisation"]["day"]
    step = 600 / 3600  # of an hour that is over: one that was measured in part counts whole
    measured, used = (sum(hour[name] for hour in booked) for name in ("measured", "used"))
    assert -0.1 < measured - (700 + 700 + 120 + 700) / 3600 < 0.1 + 4 * step
    assert -0.1 < used - 700 * 0.93 / 3600 < 0.1 + step


def test_only_its_project_sees_who_holds_a_shared_machine(
    project: Project, cluster: Cluster, colleague: Api, stranger: Api
) -> None:
    DevEnvironment.objects.filter(pk="env-001").update(shared=True)
    lease_environments(a_task(project, cluster, "task-a"), "env-001")
    told = stranger.get("/overview").data
    assert (told["gpus"]["total"], told["gpus"]["held"]) == (2, 2)
    assert [(row["key"], row["held"]) for row in told["people"]] == [("", 2)]
    assert [(row["key"], row["held"]) for row in told["projects"]] == [("", 2)]
    assert "task-a" not in str(told)
    assert colleague.get("/overview").data["people"][0]["name"] == "colleague"


def test_waiting_tasks_are_counted_by_age_and_reason(
    project: Project, cluster: Cluster, colleague: Api, stranger: Api
) -> None:
    for number in range(12):
        params = {"wanted": "8 × H100" if number < 10 else "2 × A100", "free": str(number)}
        a_task(
            project, cluster, f"task-{number:02}", TaskState.QUEUED, reason="WAITING_FOR_CAPACITY", reason_params=params
        )
    a_task(project, cluster, "task-new", TaskState.QUEUED, state_since=now())
    queue = colleague.get("/overview").data["queue"]
    assert queue["total"] == 13
    assert {age["upTo"]: age["count"] for age in queue["ages"] if age["count"]} == {60: 1, 6 * 3600: 12}
    assert [(reason["code"], reason["count"]) for reason in queue["reasons"]] == [
        ("WAITING_FOR_CAPACITY", 10), ("WAITING_FOR_CAPACITY", 2), ("", 1),
    ]  # fmt: skip
    most, others, undecided = queue["reasons"]
    assert ("8 × H100" in most["message"], "2 × A100" in others["message"]) == (True, True)
    assert "…" in most["message"], "how much is free differs"
    assert undecided["cause"] == undecided["message"] == ""
    listed = colleague.get("/training-tasks", cause=others["cause"], status=["queued"]).data["items"]
    assert {task["taskId"] for task in listed} == {"task-10", "task-11"}
    assert colleague.get("/training-tasks", cause="WAITING_FOR_CAPACITY").data["total"] == 12
    assert len(queue["oldest"]) == 10
    assert queue["oldest"][0]["reason"]["code"] == "WAITING_FOR_CAPACITY"
    assert stranger.get("/overview").data["queue"]["total"] == 0


def test_failures_of_the_week_are_grouped_by_cause_and_node(project: Project, cluster: Cluster, admin: Api) -> None:
    for number in range(30):
        task = a_task(project, cluster, f"task-{number:02}", TaskState.SUCCEEDED)
        Node.objects.create(task=task, node_rank=0, environment_id="env-001", name="env-001", zone="z", processes=1)
        Node.objects.create(task=task, node_rank=1, environment_id="env-003", name="env-003", zone="z", processes=1)
        lost = {"node": "env-003", "evidence": "silent"} if number < 6 else None
        failed_attempt(task, 1, "NODE_LOST" if lost else "COMPLETED", **(lost or {}))
    failed_attempt(a_task(project, cluster, "task-old", TaskState.FAILED, reason="RUN_TIMEOUT"), 1, "RUN_TIMEOUT")
    Attempt.objects.filter(task="task-old").update(ended_at=now() - timedelta(days=8))
    asked = a_task(project, cluster, "task-asked")
    for number, outcome in enumerate(("GAVE_WAY", "PAUSED", "RESIZING", "STOPPED_BY_USER", "STOPPED_AND_KILLED")):
        failed_attempt(asked, number, outcome)
    told = admin.get("/overview").data["failures"]
    assert {cause["code"]: (cause["attempts"], cause["tasks"]) for cause in told["causes"]} == {
        "NODE_LOST": (6, 0), "RUN_TIMEOUT": (0, 1),
    }  # fmt: skip
    assert told["starts"] == 60
    [node] = told["nodes"]
    assert (node["environmentId"], node["starts"], node["failures"], node["standsOut"]) == ("env-003", 30, 6, True)


def test_failures_are_grouped_by_rule_or_exception_with_links_to_tasks(
    project: Project, cluster: Cluster, admin: Api, colleague: Api, stranger: Api
) -> None:
    memory = {"why": "CUDA_OUT_OF_MEMORY", "about": {"node": "gn5", "rank": 1}}
    wrong = {"exception": "ValueError: 7 rows", "at": "train.py:41 in main"}
    for number, params in enumerate((memory, memory, wrong, wrong, wrong)):
        told = {"rank": number, "node": f"gn{number}", "exitCode": 1, **params}
        failed = a_task(
            project, cluster, f"task-{number}", TaskState.FAILED, reason="RANK_FAILED", reason_params=told, attempt=1
        )
        failed_attempt(failed, 1, "RANK_FAILED", **told)
    went_on = a_task(project, cluster, "task-5", attempt=2)
    failed_attempt(went_on, 1, "RANK_FAILED", rank=9, node="gn9", exitCode=1, **wrong)
    a_task(project, cluster, "task-6", TaskState.FAILED, reason="QUEUE_TIMEOUT")
    loop = {"cause": "RANK_FAILED", "rank": 0, "node": "gn0", "exitCode": 1, "times": 2, "step": 3, **wrong}
    looped = a_task(project, cluster, "task-7", TaskState.FAILED, reason="CRASH_LOOP", reason_params=loop, attempt=2)
    for number in (1, 2):
        failed_attempt(looped, number, "RANK_FAILED", rank=0, node="gn0", exitCode=1, **wrong)
    told = {"rank": 0, "node": "gn0", "exitCode": 1}
    old = a_task(project, cluster, "task-8", TaskState.FAILED, reason="RANK_FAILED", reason_params=told, attempt=1)
    failed_attempt(old, 1, "RANK_FAILED", **told)
    Attempt.objects.filter(task=old).update(cause="")  # as an earlier release stored it
    causes = admin.get("/overview").data["failures"]["causes"]
    assert [(cause["code"], cause["attempts"], cause["tasks"]) for cause in causes] == [
        ("RANK_FAILED", 6, 4), ("RANK_FAILED", 2, 2), ("RANK_FAILED", 1, 1), ("QUEUE_TIMEOUT", 0, 1),
    ]  # fmt: skip
    assert causes[0]["message"] == "ValueError: … rows — train.py:41 in main"
    assert "gn" not in causes[1]["message"]
    assert causes[1]["message"] != causes[2]["message"]
    listed = [
        {task["taskId"] for task in colleague.get("/training-tasks", cause=cause["cause"]).data["items"]}
        for cause in causes
    ]
    assert listed[0] == {"task-2", "task-3", "task-4", "task-5", "task-7"}
    assert listed[1] == {"task-0", "task-1"}
    assert "task-8" in listed[2]
    assert listed[3] == {"task-6"}
    assert stranger.get("/training-tasks", cause=causes[0]["cause"]).data["items"] == []


@pytest.mark.parametrize(
    ("worst", "rest", "out"),
    [
        ((30, 6), (1000, 10), True),
        ((30, 1), (1000, 0), False),
        ((1000, 11), (1000, 10), False),
        ((4, 2), (0, 0), False),
    ],
)
def test_a_node_is_flagged_when_its_failures_are_statistically_significant(
    worst: tuple[int, int], rest: tuple[int, int], out: bool
) -> None:
    records = [NodeRecord("bad", "bad", *worst), NodeRecord("good", "good", *rest)]
    starts, failed = worst[0] + rest[0], worst[1] + rest[1]
    assert ("bad" in failures.find_outliers(records, failed / starts, starts, 2)) is out


def test_alerts_are_counted_by_kind_and_paged_without_gaps(
    project: Project, cluster: Cluster, admin: Api, colleague: Api, stranger: Api
) -> None:
    zone = DevEnvironment.objects.get(pk="env-001").zone
    DevEnvironment.objects.bulk_create(
        DevEnvironment(
            pk=f"env-{number:03}x", name=f"n{number:03}", project=project, cluster=cluster, zone=zone,
            status=EnvironmentStatus.UNHEALTHY, gpu_count=8,
        )
        for number in range(68)
    )  # fmt: skip
    lease_environments(a_task(project, cluster, "task-a"), "env-004", "env-001")  # the first of them is stopped
    DevEnvironment.objects.filter(pk="env-002").update(cordoned=True)
    a_task(project, cluster, "task-late", TaskState.QUEUED)
    a_task(project, cluster, "task-soon", TaskState.QUEUED, state_since=now())
    a_task(project, cluster, "task-paused", TaskState.QUEUED, paused_at=now())
    a_task(project, cluster, "task-bad", TaskState.FAILED, reason="RUN_TIMEOUT")
    for code, level in (("HANG_SUSPECTED", "warn"), ("HANG", "info")):  # a doubt needs nobody
        Finding.objects.create(
            task_id="task-a", attempt=0, code=code, level=level, since=now(),
            params={"ranks": "0", "node": "env-001", "seconds": 9},
        )  # fmt: skip
    Limits.objects.create(project=project, updated_at=now(), budget=9, budget_warned=format_month(now()))
    services.record_unreachable(cluster, BackendError("ENGINE_UNREACHABLE", why="refused", where="here"))
    counts = {
        "cluster_away": 1, "task_hung": 1, "environment_unhealthy": 68, "environment_held": 1, "budget": 1,
        "task_failed": 1, "task_waits": 1, "environment_cordoned": 1,
    }  # fmt: skip
    first = admin.get("/overview/attention", pageSize=30).data
    assert {kind["kind"]: kind["count"] for kind in first["kinds"]} == counts
    assert first["total"] == sum(counts.values())
    pages = [admin.get("/overview/attention", pageSize=30, page=number).data["items"] for number in (1, 2, 3, 4)]
    assert [len(page) for page in pages] == [30, 30, sum(counts.values()) - 60, 0]
    listed = [item for page in pages for item in page]
    assert len({(item["kind"], item["subject"]["id"]) for item in listed}) == len(listed)
    assert all(item["message"] for item in listed if item["kind"] != "task_waits")
    held = next(item for item in listed if item["kind"] == "environment_held")
    assert (held["path"], held["holder"]) == ("/environments/env-004", {"taskId": "task-a", "name": "name of task-a"})
    only = admin.get("/overview/attention", kind=["task_hung", "budget"]).data
    assert [item["kind"] for item in only["items"]] == ["task_hung", "budget"]
    assert only["total"] == 2
    assert {kind["kind"]: kind["count"] for kind in only["kinds"]} == counts
    members = colleague.get("/overview/attention").data
    assert members["total"] == sum(counts.values()) - 2, "clusters are the operators', budgets the maintainers'"
    assert stranger.get("/overview/attention").data["total"] == 0
    assert stranger.get("/overview/attention", project=project.pk).status == 404
    services.record_reachable(cluster)
    assert "cluster_away" not in str(admin.get("/overview/attention").data)


def test_a_member_may_filter_alerts_to_their_own_tasks(
    project: Project, cluster: Cluster, admin: Api, owner: Api, colleague: Api
) -> None:
    mine, others = {"owner": colleague.user}, {"owner": owner.user}
    lease_environments(a_task(project, cluster, "task-a", **mine), "env-001")
    lease_environments(a_task(project, cluster, "task-b", **others), "env-003")
    for task in ("task-a", "task-b"):
        Finding.objects.create(
            task_id=task, attempt=0, code="HANG_SUSPECTED", level="warn", since=now(),
            params={"ranks": "0", "node": "env-001", "seconds": 9},
        )  # fmt: skip
    for key in ("env-001", "env-003"):
        measure(key, now(), 700, gpu_0=0.0)
    a_task(project, cluster, "task-c", TaskState.FAILED, reason="RUN_TIMEOUT", **mine)
    a_task(project, cluster, "task-d", TaskState.FAILED, reason="RUN_TIMEOUT", **others)
    a_task(project, cluster, "task-e", TaskState.QUEUED, **mine)
    a_task(project, cluster, "task-f", TaskState.QUEUED, **others)
    DevEnvironment.objects.filter(pk="env-002").update(cordoned=True)
    told = colleague.get("/overview/attention", mine="true").data
    assert {(item["kind"], item["subject"]["id"]) for item in told["items"]} == {
        ("task_hung", "task-a"), ("gpus_idle", "task-a"), ("task_failed", "task-c"), ("task_waits", "task-e"),
    }  # fmt: skip
    assert told["total"] == sum(kind["count"] for kind in told["kinds"]) == 4
    assert {kind["kind"] for kind in admin.get("/overview/attention", mine="true").data["kinds"]} == set()
    assert colleague.get("/overview/attention").data["total"] > 8


def test_added_removed_and_reserved_machines_are_listed(
    project: Project, cluster: Cluster, owner: Api, colleague: Api, admin: Api, stranger: Api
) -> None:
    assert owner.patch("/dev-environments/env-001", {"cordoned": True}).status == 200
    owner.patch("/dev-environments/env-001", {"cordoned": False})
    owner.patch("/dev-environments/env-001", {"name": "another"})
    owner.delete("/dev-environments/env-002")
    DevEnvironment.objects.filter(pk="env-003").update(discovered_as="ns/pod", gone_at=now())
    window = {"environmentIds": ["env-005"], "beginsAt": now().isoformat(), "endsAt": (now() + LONG_AGO).isoformat()}
    assert owner.post("/reservations", window).status == 201
    events = [(one["kind"], one["who"]) for one in admin.get("/overview").data["capacity"]]
    assert sorted(events) == [
        ("came", ""), ("cordoned", "owner"), ("maintenanceBegins", ""), ("uncordoned", "owner"), ("went", ""),
        ("went", "owner"),
    ]  # fmt: skip
    assert {one["who"] for one in colleague.get("/overview").data["capacity"]} == {""}
    assert stranger.get("/overview").data["capacity"] == []


def test_hourly_use_is_booked_once_and_summed_for_a_month(
    project: Project, cluster: Cluster, admin: Api, stranger: Api
) -> None:
    DevEnvironment.objects.update(created_at=now() - timedelta(days=9))
    there = sum(DevEnvironment.objects.values_list("gpu_count", flat=True))
    hour = now().replace(minute=0, second=0, microsecond=0)
    lease_environments(a_task(project, cluster, "task-a"), "env-001")
    Lease.objects.update(since=hour - timedelta(minutes=30))
    Usage.objects.create(
        task="task-b", task_name="b", kind="training", project=project, owner="o", environment_id="env-005",
        environment_name="e", zone="z", gpus=8, since=hour - timedelta(hours=3), until=hour - timedelta(minutes=90),
    )  # fmt: skip
    hourly_use.book_hours(hour + timedelta(minutes=15))
    hourly_use.book_hours(hour + timedelta(minutes=30))
    booked = {row["begins"]: row for row in Hour.objects.values("begins", "there", "held", "zone")}
    assert len({*booked}) == 49
    sums = dict.fromkeys(booked, 0.0)
    for row in Hour.objects.all():
        sums[row.begins] += row.held
    assert [sums[hour - timedelta(hours=ago)] for ago in range(5)] == pytest.approx([1, 1, 4, 8, 0])
    told = admin.get("/overview").data["utilisation"]
    assert (len(told["day"]), len(told["month"])) == (24, 30)
    assert [point["held"] for point in told["day"][-4:]] == pytest.approx([8, 4, 1, 1])
    assert told["day"][0]["there"] == pytest.approx(there)
    assert sum(point["held"] for point in told["month"]) == pytest.approx(14)
    assert {point["there"] for point in stranger.get("/overview").data["utilisation"]["day"]} == {0.0}


def test_overview_queries_do_not_grow_with_rows(project: Project, cluster: Cluster, admin: Api) -> None:
    def asked() -> list[int]:
        costs = []
        for path in ("/overview", "/overview/attention"):
            with CaptureQueriesContext(connection) as seen:
                assert admin.get(path).status == 200
            costs.append(len(seen))
        return costs

    def more(number: int) -> None:
        task = a_task(project, cluster, f"task-{number}")
        zone = DevEnvironment.objects.get(pk="env-001").zone
        DevEnvironment.objects.create(
            pk=f"env-x{number}", name=f"x{number}", project=project, cluster=cluster, zone=zone
        )
        lease_environments(task, f"env-x{number}")
        failed_attempt(task, 1, "NODE_LOST", node=f"env-x{number}", evidence="silent")
        a_task(
            project,
            cluster,
            f"task-w{number}",
            TaskState.QUEUED,
            reason="WAITING_FOR_TURN",
            reason_params={"ahead": "x"},
        )
        a_task(project, cluster, f"task-f{number}", TaskState.FAILED, reason="RUN_TIMEOUT")
        Event.objects.create(task=task, at=now(), kind="state", code="STATE_RUNNING")

    more(1)
    little = asked()
    for number in range(2, 9):
        more(number)
    assert asked() == little
