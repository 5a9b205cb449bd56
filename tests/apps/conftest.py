from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Membership, Project, User
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.training.models import Task
from apps.training.states import TaskState
from tests.apps.attempts import begin_attempt


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("reader")


@pytest.fixture
def administrator(db: None) -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def operator(administrator: User) -> Client:
    """The administrator, in the operators' console."""
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(administrator)
    return client


@pytest.fixture
def task(user: User, settings: Any, tmp_path: Path) -> Task:
    """Running its first attempt, with three ranks; nothing logged yet."""
    settings.DATA_DIR = tmp_path
    project = Project.objects.create(name="p")
    Membership.objects.create(project=project, user=user)
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=Cluster.objects.create(name="local", backend="local"),
        name="t", framework="pytorch-ddp", model=Model.objects.create(name="m"), node_count=1, total_gpus=3,
        world_size=3, master="env", request={}, spec={}, summary={}, state=TaskState.RUNNING, state_since=now(),
        due_at=now(), created_at=now(),
        dataset_version=DatasetVersion.objects.create(
            dataset=Dataset.objects.create(name="d"), name="1", status=VersionStatus.READY
        ),
    )  # fmt: skip
    begin_attempt(task, 1)
    return task
