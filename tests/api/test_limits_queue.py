"""What a project's limits, its budget and reservations let wait: the reason names them, and it passes with them."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Project
from apps.clusters.models import Lease
from apps.scheduling.models import Usage
from apps.training.models import Queue, Task
from apps.training.queue import scheduling_pass
from apps.training.reconcile import reconciler
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

LIMITS = "/projects/project-one/limits"

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


def task(api: Api, environment: str, **more: Any) -> str:
    """One that has been looked at, on one environment."""
    made: str = api.post("/training-tasks", asking(environment, **more)).data["taskId"]
    process_task(made)
    return made


def asking(environment: str, **more: Any) -> dict[str, Any]:
    request = changed(**more)
    request["environmentIds"] = [environment]
    request.pop("distributedConfig")
    return request


def process_task(task_id: str) -> None:
    """Its own pass, and the queue's decision, as the sweep does both."""
    reconciler.reconcile_tasks(task_id)
    Queue.objects.update(due_at=timezone.now())
    scheduling_pass.run_if_due()


def waits(api: Api, task_id: str) -> tuple[str, str]:
    """The reason's code and its text in English."""
    found = Api(api.user, "en").get(f"/training-tasks/{task_id}").data["reason"]
    return found["code"], f"{found['message']} {found['hint']}"


def holds(task_id: str) -> bool:
    return Lease.objects.filter(holder=task_id).exists()


@pytest.mark.database
@pytest.mark.parametrize(
    ("limit", "code", "told"),
    [
        ({"mostTasks": 1}, "LIMIT_TASKS", "1 task at once, and runs 1"),
        ({"mostGpus": 5}, "LIMIT_GPUS", "5 GPUs at once. It uses 2, and the task needs 4"),
        ({"userMostTasks": 1}, "LIMIT_USER_TASKS", "colleague can run at most 1 task at once"),
        ({"userMostGpus": 5}, "LIMIT_USER_GPUS", "colleague can use at most 5 GPUs"),
        ({"gpuHours": 0}, "LIMIT_GPU_HOURS", "of this month's 0.0 GPU-hours"),
    ],
)
def test_a_task_waits_for_a_limit_and_starts_when_it_is_raised(
    colleague: Api, admin: Api, limit: dict[str, Any], code: str, told: str
) -> None:
    assert holds(task(colleague, "env-001"))
    admin.put(LIMITS, limit)
    second = task(colleague, "env-003")
    found, text = waits(colleague, second)
    assert (found, holds(second)) == (code, False)
    assert told in text
    assert ("maintainer" if "USER" in code else "administrator") in text
    admin.put(LIMITS, {})
    process_task(second)
    assert holds(second)


def test_lowering_a_limit_ends_no_task(colleague: Api, admin: Api) -> None:
    first = task(colleague, "env-001")
    admin.put(LIMITS, {"mostGpus": 1, "mostTasks": 0, "gpuTypes": [], "longestRunSeconds": 60})
    process_task(first)
    assert holds(first)
    assert Task.objects.get(pk=first).state != "failed"


@pytest.mark.database
def test_a_spent_budget_holds_back_all_but_preemptible_tasks(colleague: Api, admin: Api, project: Project) -> None:
    admin.put(LIMITS, {"mostTasks": 0})
    plain, preemptible = task(colleague, "env-001"), task(colleague, "env-002", preemptible=True)
    moment = timezone.now()
    Usage.objects.create(
        task="task-gone", task_name="gone", kind="training", project=project, owner="viewer", environment_name="e",
        zone="z", gpus=1, since=moment, until=moment, training=3600.0, per_gpu_hour=50,
    )  # fmt: skip
    admin.put(LIMITS, {"budget": 50, "atBudget": "refuse"})
    process_task(preemptible)
    assert [holds(plain), holds(preemptible)] == [False, False]
    code, text = waits(colleague, preemptible)
    assert (code, "50.00 of 50.00 CNY" in text) == ("BUDGET_SPENT", True)
    admin.put(LIMITS, {"budget": 50, "atBudget": "preemptible"})
    process_task(plain)
    process_task(preemptible)
    assert [holds(plain), holds(preemptible)] == [False, True]


def test_a_task_waits_for_reserved_environments_unless_it_ends_in_time(colleague: Api, owner: Api, admin: Api) -> None:
    at = [(timezone.now() + timedelta(hours=hours)).isoformat() for hours in (1, 2)]
    window = {"environmentIds": ["env-001"], "beginsAt": at[0], "endsAt": at[1]}
    made = owner.post("/reservations", window).data["id"]
    unbounded = task(colleague, "env-001")
    assert (waits(colleague, unbounded)[0], holds(unbounded)) == ("WAITING_FOR_MAINTENANCE", False)
    short = task(colleague, "env-001", maxRunSeconds=600)
    assert holds(short), "it ends before the window begins"
    Lease.objects.all().delete()
    Task.objects.filter(pk=short).delete()
    assert owner.patch(f"/reservations/{made}", {"projectId": "project-one"}).data["kind"] == "reserved"
    process_task(unbounded)
    assert holds(unbounded), "its own project has it"
