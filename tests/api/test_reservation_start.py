"""What has to leave when a reservation or maintenance begins, and a task that chooses anew when it lost a machine."""

from datetime import timedelta

import pytest

from apps.accounts.models import Project
from apps.clusters.models import DevEnvironment, EnvironmentStatus, Lease
from apps.common.clock import now
from apps.scheduling.models import Reservation
from apps.training.models import Attempt, Node, Task
from apps.training.queue import preemption_requests
from apps.training.reconcile import reconciler
from tests.api.conftest import Api
from tests.api.test_tasks_select import asking

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


@pytest.fixture
def task(colleague: Api) -> Task:
    """It chose one environment, and waits between two attempts, holding it."""
    task_id = colleague.post("/training-tasks", asking({"nodes": 1, "gpusPerNode": 2})).data["taskId"]
    reconciler.reconcile_tasks(task_id)
    Attempt.objects.filter(task=task_id).update(outcome="ATTEMPT_LOST", ended_at=now() - timedelta(minutes=5))
    Task.objects.filter(pk=task_id).update(state="queued", due_at=now(), reason="")
    return Task.objects.get(pk=task_id)


def held(task: Task) -> list[str]:
    return list(Lease.objects.filter(holder=task.pk).values_list("environment_id", flat=True))


def aside(environment: str, project: Project | None, begins: timedelta) -> None:
    row = Reservation.objects.create(
        project=project, begins_at=now() + begins, ends_at=now() + timedelta(hours=2), note="driver", created_at=now()
    )
    row.environments.set([environment])


def test_maintenance_that_starts_moves_tasks_to_other_environments(task: Task) -> None:
    (place,) = held(task)
    aside(place, None, timedelta(hours=1))
    assert preemption_requests.preempt_for_reservations(now()) == [], "it has not begun"
    Reservation.objects.update(begins_at=now() - timedelta(seconds=1))
    assert preemption_requests.preempt_for_reservations(now()) == [task.pk]
    assert preemption_requests.preempt_for_reservations(now()) == [], "it is asked once"
    event = task.events.get(code="PREEMPTION_REQUESTED")
    assert (event.params["why"], event.params["by"]) == ("MAINTENANCE", "driver")
    Task.objects.filter(pk=task.pk).update(due_at=now())
    reconciler.reconcile_tasks(task.pk)
    assert held(task)
    assert place not in held(task)


def test_a_reservation_that_starts_preempts_other_projects_only(task: Task) -> None:
    (place,) = held(task)
    aside(place, task.project, timedelta(hours=-1))
    assert preemption_requests.preempt_for_reservations(now()) == []
    other = Project.objects.exclude(pk=task.project_id).first()
    Reservation.objects.update(project=other)
    assert preemption_requests.preempt_for_reservations(now()) == [task.pk]


def test_a_restart_chooses_environments_again_after_a_loss(task: Task, colleague: Api) -> None:
    (place,) = held(task)
    DevEnvironment.objects.filter(pk=place).update(status=EnvironmentStatus.UNHEALTHY)
    reconciler.reconcile_tasks(task.pk)
    (other,) = held(task)
    assert other != place
    assert Node.objects.get(task=task).environment_id == other
    assert Task.objects.get(pk=task.pk).attempt == 2
    codes = [event["code"] for event in colleague.get(f"/training-tasks/{task.pk}/events").data["items"]]
    assert codes.count("ENVIRONMENTS_CHOSEN") == 2
