"""Workers, groups and join tokens in the operators' console."""

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import AuditEvent, Project, User
from apps.common.clock import now
from apps.workers.models import Group, JoinToken, Report, Worker

pytestmark = pytest.mark.database


@pytest.fixture
def worker(db: None) -> Worker:
    project = Project.objects.create(name="p")
    group = Group.objects.create(project=project, name="pretrain")
    made = Worker.objects.create(
        pk="gn6-0", node="gn6", number=0, project=project, group=group, machine="m", digest="secret digest"
    )
    Report.objects.create(worker=made, at=now())
    return made


def act(client: Client, model: str, action: str, key: str) -> str:
    address = reverse(f"admin:workers_{model}_changelist")
    response = client.post(address, {"action": action, "_selected_action": [key]}, follow=True)
    return response.content.decode()


def test_a_worker_is_shown_without_its_secret_and_can_be_removed(operator: Client, worker: Worker) -> None:
    shown = operator.get(reverse("admin:workers_worker_changelist")).content.decode()
    assert "online" in shown
    assert "pretrain" in shown
    page = operator.get(reverse("admin:workers_worker_change", args=[worker.pk])).content.decode()
    assert "secret digest" not in page
    assert "removed: 1" in act(operator, "worker", "remove", worker.pk)
    assert not Worker.objects.exists()
    assert AuditEvent.objects.filter(action="worker.remove", actor__username="root").exists()


def test_a_group_shows_its_number_of_workers(operator: Client, worker: Worker) -> None:
    assert worker.group is not None
    assert "pretrain" in operator.get(reverse("admin:workers_group_changelist")).content.decode()
    assert "stopping: 1" in act(operator, "group", "stop", worker.group.pk)


def test_a_join_token_can_be_revoked(operator: Client, worker: Worker) -> None:
    made = JoinToken.objects.create(project=worker.project, owner=User.objects.get(), name="lab", digest="d" * 64)
    page = operator.get(reverse("admin:workers_jointoken_change", args=[made.pk])).content.decode()
    assert "d" * 64 not in page
    assert "revoked: 1" in act(operator, "jointoken", "revoke", made.pk)
    assert not JoinToken.objects.exists()
