"""A platform with something of everything in it, for requests that are made from the API's schema."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as platform
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, Role, User
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters.models import Cluster
from apps.training.models import Attempt, Checkpoint, Event, MetricPoint, Task
from apps.training.states import TaskState
from server import demo
from tests.api.conftest import Api, make_user
from tests.workers import Host, hosts, join

SINGLE = {
    "taskName": "small", "datasetId": "dataset-001", "datasetVersionId": "version-001", "modelId": "model-001",
    "environmentIds": ["env-001"],
}  # fmt: skip


@dataclass
class World:
    """`known`: by the name of a parameter or a field of a body, what there is of it."""

    people: list[Api]
    host: Host
    join_token: str
    known: dict[str, list[Any]] = field(default_factory=dict)

    def token(self, kind: str, turn: int) -> str:
        """Of the kind that an operation asks for; people take turns."""
        match kind:
            case "joinToken":
                return self.join_token
            case "workerToken":
                return self.host.tokens["gn6-0"]
        return self.people[turn % len(self.people)].token

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """What a request changes in here is as if it had never been."""
        with transaction.atomic():
            yield
            transaction.set_rollback(True)


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    with django_db_blocker.unblock(), transaction.atomic():
        yield _made()
        transaction.set_rollback(True)


def _made() -> World:
    project = Project.objects.create(pk="project-one", name="one")
    Project.objects.create(pk="project-two", name="two")
    owner = Api(make_user("owner", project, Role.MAINTAINER))
    colleague = Api(make_user("colleague", project, Role.MEMBER))
    viewer = Api(make_user("viewer", project, Role.VIEWER))
    admin = Api(User.objects.create_superuser("admin"))
    cluster = Cluster.objects.create(pk="local", name="local", backend="local")
    demo.add_environments(project, cluster, {"python": "3.11.9", "torch": "2.13.0"})
    _catalog()
    tasks = [colleague.post("/training-tasks", {**SINGLE, "taskName": name}).data["taskId"] for name in ("a", "b")]
    _has_run(Task.objects.get(pk=tasks[0]))
    waiting = [colleague.post("/training-tasks", {**SINGLE, "taskName": name}).data["taskId"] for name in ("c", "d")]
    Task.objects.filter(pk__in=waiting).update(state=TaskState.QUEUED, in_line_at=timezone.now())
    tasks += waiting
    test = colleague.post("/preflights", {"environmentIds": ["env-002"]}).data["id"]
    [host] = hosts(colleague, gn6=2).values()
    settings_of = {"name": "pretrain", "script": "train.py", "workerIds": ["gn6-0"]}
    groups = [colleague.post("/worker-groups", settings_of).data["id"]]
    groups.append(colleague.post("/worker-groups", {"name": "empty"}).data["id"])
    world = World([admin, owner, colleague, viewer], host, join(colleague))
    environments = ["env-001", "env-002", "env-003", "env-005"]
    aside = {"environmentIds": ["env-003"], "beginsAt": "2077-01-01T00:00:00Z", "endsAt": "2077-01-02T00:00:00Z"}
    reservation = owner.post("/reservations", aside).data["id"]
    owner.put("/projects/project-one/limits/users/viewer", {"mostGpus": 8})
    world.known = {
        "task_id": tasks, "before": waiting, "preflight_id": [test], "reservation_id": [reservation], "rank": [0],
        "project_id": ["project-one", "project-two"],
        "environment_id": environments, "cluster_id": ["local", "workers"], "dataset_id": ["dataset-001"],
        "worker_id": ["gn6-0", "gn6-1"], "group_id": groups, "username": ["viewer", "colleague"], "attempt": [1],
        "token_id": [_ids(colleague, "/tokens")[0], _ids(colleague, "/workers/join-tokens")[0]],
        "environmentIds": environments, "nodeIds": environments, "spareEnvironmentIds": environments,
        "masterNode": environments[:1], "datasetId": ["dataset-001"], "datasetVersionId": ["version-001"],
        "modelId": ["model-001"], "projectId": ["project-one"], "clusterId": ["local"], "groupId": groups,
        "workerIds": ["gn6-0", "gn6-1"], "zone": ["北京可用区A"], "path": [str(platform.DATA_DIR)],
        "framework": ["pytorch-ddp", "pytorch-fsdp", "jax"], "backend": ["auto", "nccl", "local"],
    }  # fmt: skip
    return world


def _ids(api: Api, path: str) -> list[str]:
    return api.get(path).ids


def _catalog() -> None:
    dataset = Dataset.objects.create(pk="dataset-001", name="text")
    DatasetVersion.objects.create(
        pk="version-001", dataset=dataset, name="v1", status=VersionStatus.READY, progress=1.0,
        train_path="/data/train.bin", valid_path="/data/val.bin", train_tokens=900, valid_tokens=100,
    )  # fmt: skip
    Model.objects.create(pk="model-001", name="gpt-small", recipe="gpt", defaults=demo.GPT_DEFAULTS)


def _has_run(task: Task) -> None:
    """One attempt, with everything that an attempt leaves."""
    moment = timezone.now()
    Attempt.objects.create(
        task=task, number=1, master_port=29500, outcome="RANK_FAILED", created_at=moment, running_at=moment,
        outcome_params={"rank": 0, "node": "env-001", "code": 1, "exitCode": 1, "evidence": "", "signal": None},
        ended_at=moment, plan={"artifacts": []},
        seen={"ranks": [{"rank": 0, "state": "exited", "pid": 7, "exit_code": 1}]},
    )  # fmt: skip
    Event.objects.create(task=task, attempt=1, at=moment, kind="state", code="SCRIPT_STARTED", params={})
    MetricPoint.objects.create(task=task, attempt=1, rank=0, step=1, at=moment, values={"loss": 2.5, "lr": None})
    Checkpoint.objects.create(task=task, attempt=1, step=1, path="/checkpoints/1", size_bytes=10, at=moment)
    Task.objects.filter(pk=task.pk).update(
        state=TaskState.FAILED, reason="QUEUE_TIMEOUT", due_at=None, attempt=1, started_at=moment, ended_at=moment
    )
    log = Path(platform.DATA_DIR, "logs", task.pk, "1", "0.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one line\nanother\n", encoding="utf-8")


@dataclass
class Turns:
    """Numbers that differ from request to request in the same way every time."""

    count: Iterator[int] = field(default_factory=itertools.count)

    def __call__(self) -> int:
        return next(self.count)


@pytest.fixture(autouse=True)
def no_broker(settings: Any) -> None:
    """Each request has an event loop of its own here, which ends while a stream would still be closing its connection.
    What streams say comes from the database; the broker only says when to look."""
    settings.REDIS_URL = "redis://127.0.0.1:1"


@pytest.fixture
def turns() -> Turns:
    return Turns()
