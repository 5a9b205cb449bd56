"""What a decision knows of projects and reservations takes as many queries for many as for one."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.scheduling import selectors
from apps.scheduling.models import Limits, Price, Reservation, Share, Usage, UserLimits
from fermi.scheduler.snapshot import EnvironmentInfo, RunningTask

pytestmark = pytest.mark.django_db


def a_project(number: int, zone: AvailabilityZone, cluster: Cluster) -> tuple[RunningTask, EnvironmentInfo]:
    """With something of everything; one of its tasks holds an environment of four GPUs for half an hour."""
    now = timezone.now()
    project = Project.objects.create(name=f"p{number}")
    user = User.objects.create_user(f"u{number}")
    Membership.objects.create(project=project, user=user)
    Limits.objects.create(project=project, updated_at=now, budget=10, at_budget="refuse", most_gpus=number)
    UserLimits.objects.create(project=project, user=user, most_gpus=1)
    Share.objects.create(project=project, used=1000.0, as_of=now - timedelta(days=7))
    environment = DevEnvironment.objects.create(
        name=f"e{number}", project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=4
    )
    Usage.objects.create(
        task=f"task-{number}", task_name="t", kind="training", project=project, owner=user.username,
        environment=environment, environment_name="e", zone="z", gpus=2, since=now, until=now, training=3600.0,
        per_gpu_hour=4,
    )  # fmt: skip
    window = Reservation.objects.create(
        project=project, begins_at=now, ends_at=now + timedelta(hours=1), created_at=now
    )
    window.environments.set([environment])
    begun = max((now - timedelta(minutes=30)).timestamp(), selectors.get_month_start(now).timestamp())
    held = RunningTask(f"task-{number}", project.pk, user.username, (environment.pk,), begun)
    return held, EnvironmentInfo(environment.pk, "e", project.pk, cluster.pk, zone.pk, gpu_type="A100", gpus=4)


def test_loading_the_queue_takes_as_many_queries_for_many_projects_as_for_one() -> None:
    zone = AvailabilityZone.objects.create(name="A")
    cluster = Cluster.objects.create(name="local", backend="local")
    Price.objects.create(per_gpu_hour=1, since=timezone.now() - timedelta(days=90))
    counts, held, places = [], [], []
    for number in range(4):
        one, there = a_project(number, zone, cluster)
        held.append(one)
        places.append(there)
        with CaptureQueriesContext(connection) as seen:
            known = selectors.read_projects(timezone.now(), held, places)
            windows = selectors.list_reservation_windows(timezone.now())
        counts.append(len(seen))
    assert len(set(counts)) == 1, counts
    assert (len(known), len(windows)) == (4, 4)
    last = known[held[-1].project]
    hours = 2 + 4 * (timezone.now().timestamp() - held[-1].since) / 3600
    assert last.spent_hours == pytest.approx(hours, rel=0.01)
    assert last.spent_by_user == {"u3": last.spent_hours}
    assert last.used == pytest.approx(500, rel=0.01)
    assert (last.most_gpus, last.users["u3"].most_gpus) == (3, 1)
    over = 8 + (hours - 2) >= 10
    assert (last.stopped is not None) is over
