"""What was used and what it cost: from the ledger and from what is held now, as far as one may see it."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Project
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.common.models import ClockJump
from apps.scheduling.models import Price, Share, Usage
from apps.scheduling.selectors import get_month_start, sum_spend
from apps.training.core import release
from apps.training.models import Attempt, Event, Finding, MetricPoint, Task
from apps.training.queue import load
from apps.training.usage import report as usage
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


@pytest.fixture
def task(colleague: Api) -> Task:
    """It has held three environments (2 + 4 + 8 GPUs) for an hour, and has them still."""
    task = Task.objects.get(pk=colleague.post("/training-tasks", changed()).data["taskId"])
    began = now() - timedelta(hours=1)
    Task.objects.filter(pk=task.pk).update(created_at=began - timedelta(minutes=10), attempt=1, state="running")
    for node in task.nodes.all():
        Lease.objects.create(environment_id=node.environment_id, holder=task.pk, since=began)
    Attempt.objects.create(
        task=task, number=1, master_port=1, created_at=began, running_at=began + timedelta(minutes=6), plan={}
    )
    Price.objects.create(per_gpu_hour=Decimal(2), since=began - timedelta(days=1))
    return Task.objects.get(pk=task.pk)


def test_usage_of_a_task_includes_current_leases(task: Task, colleague: Api, viewer: Api, stranger: Api) -> None:
    told = colleague.get(f"/training-tasks/{task.pk}/usage").data
    assert told["heldSeconds"] == pytest.approx(3600, abs=30)
    assert told["queuedSeconds"] == pytest.approx(600, abs=1)
    assert (told["starting"], told["training"]) == (pytest.approx(360, abs=1), pytest.approx(3240, abs=30))
    assert told["gpuHours"] == pytest.approx(14, rel=0.01)
    assert told["cost"] == pytest.approx(28, rel=0.01)
    assert told["goodput"] == pytest.approx(0.9, abs=0.01)
    assert [node["open"] for node in told["nodes"]] == [True] * 3
    assert viewer.get(f"/training-tasks/{task.pk}/usage").status == 200
    assert stranger.get(f"/training-tasks/{task.pk}/usage").status == 404


def test_releasing_books_each_environment_once(task: Task, colleague: Api) -> None:
    ends = now()
    Event.objects.create(task=task, attempt=1, at=ends - timedelta(minutes=3), kind="attempt", code="ATTEMPT_ENDING")
    Attempt.objects.filter(task=task).update(outcome="GAVE_WAY", ended_at=ends)
    leases = list(Lease.objects.filter(holder=task.pk))
    assert release.release_environments(task) == 3
    for lease in leases:  # as after a crash in between
        Lease(environment_id=lease.environment_id, holder=lease.holder, since=lease.since).save(force_insert=True)
    assert release.release_environments(task) == 3
    assert not Lease.objects.exists()
    assert Usage.objects.count() == 3
    rows = Usage.objects.order_by("gpus")
    assert [row.gpus for row in rows] == [2, 4, 8]
    assert all(row.saving == pytest.approx(180, abs=2) for row in rows)
    share = Share.objects.get(project=task.project)
    assert share.used == pytest.approx(14 * 3600, rel=0.01), "and once, though it was given back twice"
    total = colleague.get("/usage", by="task", **{"from": (ends - timedelta(days=1)).isoformat()}).data["total"]
    assert total["gpuHours"] == pytest.approx(14, rel=0.01)


def test_clock_jumps_are_not_charged(task: Task, colleague: Api) -> None:
    """It was set forward by half an hour while the task trained, and by five minutes while it waited."""
    ends = now()
    ClockJump.objects.create(at=ends - timedelta(minutes=10), seconds=1800)
    ClockJump.objects.create(at=ends - timedelta(minutes=62), seconds=300)
    ClockJump.objects.create(at=ends - timedelta(minutes=5), seconds=-7200)  # back: nobody is charged for that either
    told = colleague.get(f"/training-tasks/{task.pk}/usage").data
    assert told["heldSeconds"] == pytest.approx(1800, abs=30)
    assert told["queuedSeconds"] == pytest.approx(300, abs=1)
    assert (told["starting"], told["training"]) == (pytest.approx(360, abs=1), pytest.approx(1440, abs=30))
    assert told["gpuHours"] == pytest.approx(7, rel=0.02)
    spent = sum_spend(now(), load.load_running_tasks(now()), load.load_environments())[task.project_id]
    assert sum(spent.hours.values()) == pytest.approx(7, rel=0.02)
    assert release.release_environments(task) == 3
    booked = Usage.objects.filter(gpus=8).order_by("since")
    assert [(one.until - one.since).total_seconds() for one in booked] == [
        pytest.approx(1200, abs=30), pytest.approx(600, abs=30),
    ]  # fmt: skip
    assert [one.waited for one in booked] == [pytest.approx(300, abs=1), 0.0]
    assert Share.objects.get(project=task.project).used == pytest.approx(7 * 3600, rel=0.02)


def row(project: Project, **changes: Any) -> Usage:
    since = datetime(2026, 5, 1, tzinfo=UTC)
    values: dict[str, Any] = {
        "task": "task-1", "task_name": "t", "kind": "training", "project": project, "owner": "ann",
        "environment": DevEnvironment.objects.get(pk="env-001"), "environment_name": "gn4", "zone": "z",
        "gpu_type": "A100", "gpus": 2, "since": since, "until": since + timedelta(hours=10), "starting": 3600.0,
        "training": 9 * 3600.0, "per_gpu_hour": Decimal("1.5"),
    }  # fmt: skip
    return Usage.objects.create(**{**values, **changes})


MAY = {"from": "2026-05-01T00:00:00Z", "to": "2026-06-01T00:00:00Z"}


@pytest.mark.parametrize(("by", "keys"), [
    ("task", ["task-2", "task-1"]), ("user", ["bob", "ann"]), ("environment", ["env-002", "env-001"]),
    ("month", ["2026-05"]),
])  # fmt: skip
def test_a_report_sums_by_the_requested_group(colleague: Api, by: str, keys: list[str]) -> None:
    project = Project.objects.get(memberships__user=colleague.user)
    row(project)
    row(project, task="task-2", owner="bob", gpus=8, environment=DevEnvironment.objects.get(pk="env-002"))
    told = colleague.get("/usage", by=by, **MAY).data
    assert [item["key"] for item in told["items"]] == keys
    assert told["total"]["gpuHours"] == 100
    assert told["total"]["cost"] == 150
    assert told["total"]["goodput"] == pytest.approx(0.9)
    assert told["items"][0]["training"] == (72 if len(keys) > 1 else 90)


def test_a_partly_covered_row_counts_in_part(colleague: Api) -> None:
    row(Project.objects.get(memberships__user=colleague.user))
    told = colleague.get("/usage", **{**MAY, "from": "2026-05-01T05:00:00Z"}).data["total"]
    assert (told["gpuHours"], told["cost"]) == (10, 15)


def test_strangers_see_no_usage_and_csv_has_the_same_numbers(colleague: Api, stranger: Api, admin: Api) -> None:
    row(Project.objects.get(memberships__user=colleague.user))
    assert stranger.get("/usage", **MAY).data["items"] == []
    assert len(admin.get("/usage", **MAY).data["items"]) == 1
    assert Api().get("/usage").status == 401
    answer = colleague.client.get(
        "/api/v1/usage", {**MAY, "by": "user", "format": "csv"}, headers={"Authorization": f"Bearer {colleague.token}"}
    )
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    head, line = answer.content.decode().splitlines()
    assert head.startswith("key,name,gpuHours")
    assert line.startswith("ann,ann,20.000")
    assert colleague.get("/usage", **{"from": MAY["to"], "to": MAY["from"]}).error == "TIMES_BACKWARDS"


def test_a_lease_over_a_month_end_is_two_rows() -> None:
    since, until = datetime(2026, 11, 29, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC)
    assert [(a.month, b.month) for a, b in release.split_by_month(since, until)] == [(11, 12), (12, 1), (1, 1)]


def test_csv_cells_cannot_be_formulas(colleague: Api) -> None:
    row(Project.objects.get(memberships__user=colleague.user), task_name="=1+1")
    told = colleague.get("/usage", by="task", **MAY).data
    assert (told["items"][0]["name"], "task-1,'=1+1," in usage.format_csv(told)) == ("=1+1", True)


def test_a_lease_since_last_month_counts_in_both_months_at_their_prices(task: Task, colleague: Api) -> None:
    begins = get_month_start(now())
    Lease.objects.filter(holder=task.pk).update(since=begins - timedelta(hours=2))
    Price.objects.update(since=begins - timedelta(days=1))
    Price.objects.create(per_gpu_hour=Decimal(1000), since=begins - timedelta(hours=1))
    asked = {"from": (begins - timedelta(days=1)).isoformat(), "to": (begins + timedelta(hours=1)).isoformat()}
    months = {one["key"]: one for one in colleague.get("/usage", by="month", **asked).data["items"]}
    before = months[f"{begins - timedelta(days=1):%Y-%m}"]
    assert (before["gpuHours"], before["openGpuHours"], before["cost"]) == (28, 28, 56)
    held = min(now() - begins, timedelta(hours=1)) / timedelta(hours=1)
    after = months[f"{begins:%Y-%m}"]
    assert (after["gpuHours"], after["cost"]) == (
        pytest.approx(14 * held, rel=0.05, abs=0.1), pytest.approx(14_000 * held, rel=0.05, abs=100),
    )  # fmt: skip
    assert release.release_environments(task) == 3
    rows = Usage.objects.filter(environment="env-001").order_by("since")
    assert [one.per_gpu_hour for one in rows] == [2, 1000]
    assert rows[0].until == rows[1].since == begins
    booked = {one["key"]: one for one in colleague.get("/usage", by="month", **asked).data["items"]}
    for month, one in booked.items():
        assert one["gpuHours"] == pytest.approx(months[month]["gpuHours"], rel=0.05, abs=0.1)
        assert one["openGpuHours"] == 0


def test_a_task_in_the_engines_queue_is_charged_once_its_ranks_run(task: Task, colleague: Api) -> None:
    """Several may wait for the same environments there, and a lease has only the first."""
    Cluster.objects.filter(pk=task.cluster_id).update(backend="slurm")
    Lease.objects.exclude(environment="env-001").delete()
    attempt = task.attempts.get()
    ran = attempt.running_at
    assert ran
    held = (now() - ran).total_seconds()
    told = colleague.get(f"/training-tasks/{task.pk}/usage").data
    assert (len(told["nodes"]), told["heldSeconds"]) == (3, pytest.approx(held, abs=30))
    assert told["queuedSeconds"] == pytest.approx(600 + 360, abs=1)
    total = colleague.get("/usage", **{"from": (ran - timedelta(days=1)).isoformat()}).data["total"]
    assert total["openGpuHours"] == pytest.approx(14 * held / 3600, rel=0.05)
    task = Task.objects.get(pk=task.pk)
    assert (release.release_environments(task), Usage.objects.count()) == (1, 0), "it still runs"
    attempt.ended_at = ran + timedelta(minutes=30)
    attempt.save()
    for _ in range(2):
        release.release_environments(task)
    assert sorted(Usage.objects.values_list("gpus", "since", "until")) == [
        (gpus, ran, attempt.ended_at) for gpus in (2, 4, 8)
    ]
    assert Share.objects.get().used == pytest.approx(14 * 1800, rel=0.01)


def test_booked_and_current_usage_count_as_one_task(task: Task, colleague: Api) -> None:
    since = now() - timedelta(hours=3)
    row(task.project, task=task.pk, since=since, until=since + timedelta(minutes=1))
    asked = {"from": (since - timedelta(hours=1)).isoformat(), "by": "project"}
    [item] = colleague.get("/usage", **asked).data["items"]
    assert item["tasks"] == 1


def test_report_queries_do_not_grow_with_rows(colleague: Api, task: Task) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            colleague.get("/usage", by="user", **MAY)
        return len(seen)

    few = queries()
    project = Project.objects.get(memberships__user=colleague.user)
    for number in range(20):
        row(project, task=f"task-{number}", owner=f"user-{number}")
    assert queries() == few


def test_waiting_and_hanging_time_is_booked(task: Task, colleague: Api) -> None:
    began = Lease.objects.filter(holder=task.pk).earliest("since").since
    ends = now()
    Finding.objects.create(task=task, attempt=1, code="HANG", level="fail", since=ends - timedelta(minutes=20))
    over = {"code": "HANG_SUSPECTED", "level": "warn", "since": began, "until": began + timedelta(minutes=9)}
    Finding.objects.create(task=task, attempt=1, **over)
    Attempt.objects.filter(task=task).update(outcome="HANG", ended_at=ends)
    Event.objects.create(task=task, attempt=1, at=ends - timedelta(minutes=2), kind="attempt", code="ATTEMPT_ENDING")
    told = colleague.get(f"/training-tasks/{task.pk}/usage").data
    assert (told["hung"], told["starting"]) == (pytest.approx(18 * 60, abs=2), pytest.approx(360, abs=2))
    release.release_environments(task)
    booked = Usage.objects.filter(task=task.pk)
    assert {round(row.waited) for row in booked} == {600}
    assert all(row.hung == pytest.approx(18 * 60, abs=2) for row in booked)
    total = colleague.get("/usage", **{"from": (ends - timedelta(days=1)).isoformat()}).data["total"]
    assert total["waited"] == pytest.approx(14 / 6, rel=0.01)
    assert total["ettr"] == pytest.approx(total["training"] / (14 + 14 / 6), rel=0.01)
    environment = DevEnvironment.objects.get(pk="env-001")
    again = release.HoldInterval(task.pk, environment, ends + timedelta(minutes=5), ends + timedelta(minutes=6))
    later = release.build_usage_rows(task, [again])
    assert later[0].waited == pytest.approx(300, abs=2), "since it gave back what it had"


def test_mfu_is_relative_to_the_peak_of_its_gpus(task: Task, colleague: Api) -> None:
    def told() -> Any:
        return colleague.get(f"/training-tasks/{task.pk}/usage").data["modelFlops"]

    assert told() is None
    for step in (10, 20):
        at = now() + timedelta(seconds=step)
        values = {"flops_per_step": 5e14}
        MetricPoint.objects.create(task=task, attempt=1, rank=0, step=step, at=at, values=values)
    assert told()["tflops"] == pytest.approx(500, rel=0.01)
    assert told()["utilisation"] is None, "emulated GPUs have no peak"
    spec = {**task.spec, "nodes": [{**node, "emulated": False} for node in task.spec["nodes"]]}
    Task.objects.filter(pk=task.pk).update(spec=spec)
    MetricPoint.objects.update(values={"tflops": 1747.2})
    assert told() == {"tflops": 1747.2, "peakTflops": 14 * 312, "utilisation": pytest.approx(0.4)}
    first = MetricPoint.objects.order_by("pk")[0]
    MetricPoint.objects.filter(pk=first.pk).update(values={"tflops": 14.4})
    assert told()["tflops"] == 1747.2, "the first point of an attempt is that of a cold start"
    MetricPoint.objects.exclude(pk=first.pk).delete()
    assert told()["tflops"] == 14.4, "there is no other"
