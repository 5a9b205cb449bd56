"""The list of projects with what is in each: who sees which, what is counted, and by how many queries."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.training.models import Task
from apps.training.states import TaskState
from tests.api.conftest import Api, make_user

pytestmark = pytest.mark.database
PATH = "/overview/projects"
COUNTS = ("members", "serviceAccounts", "runningTasks", "gpus")


def a_task(project: Project, cluster: Cluster, state: TaskState, gpus: int) -> None:
    ends: dict[str, Any] = {"ended_at": now()} if state is TaskState.FAILED else {"due_at": now()}
    Task.objects.create(
        name="t", project=project, owner=User.objects.earliest("pk"), cluster=cluster, framework="pytorch-ddp",
        node_count=1, total_gpus=gpus, world_size=gpus, master="env-001", request={}, spec={}, summary={}, state=state,
        state_since=now(), created_at=now(), **ends,
    )  # fmt: skip


def counts_by_name(api: Api, **query: Any) -> dict[str, tuple[int, ...]]:
    return {item["name"]: tuple(item[name] for name in COUNTS) for item in api.get(PATH, **query).data["items"]}


def test_a_project_is_listed_with_people_service_accounts_and_running_tasks(
    admin: Api, owner: Api, colleague: Api, stranger: Api, project: Project, cluster: Cluster
) -> None:
    for name in ("ci", "gone"):
        owner.post("/projects/project-one/service-accounts", {"name": name, "role": "member"})
    owner.delete("/projects/project-one/service-accounts/gone")
    for state, gpus in (
        (TaskState.RUNNING, 8),
        (TaskState.STARTING, 2),
        (TaskState.STOPPING, 1),
        (TaskState.QUEUED, 16),
        (TaskState.FAILED, 32),
    ):
        a_task(project, cluster, state, gpus)
    Project.objects.create(pk="project-three", name="empty")
    assert counts_by_name(admin) == {"empty": (0, 0, 0, 0), "one": (2, 1, 3, 11), "two": (1, 0, 0, 0)}
    assert counts_by_name(owner) == {"one": (2, 1, 3, 11)}


def test_each_person_sees_their_own_projects_alone(
    owner: Api, colleague: Api, stranger: Api, anonymous: Api, admin: Api
) -> None:
    roles = [[(item["id"], item["role"]) for item in api.get(PATH).data["items"]] for api in (owner, colleague)]
    assert roles == [[("project-one", "maintainer")], [("project-one", "member")]]
    assert stranger.get(PATH).ids == ["project-two"]
    assert admin.get(PATH).ids == ["project-one", "project-two"]
    assert (anonymous.get(PATH).status, anonymous.get(PATH).error) == (401, "NOT_AUTHENTICATED")


def test_a_token_without_the_right_to_read_projects_is_refused(owner: Api) -> None:
    token = owner.post("/tokens", {"name": "narrow", "scopes": ["tasks:read"]}).data["token"]
    owner.token = token
    assert owner.get(PATH).status == 403


def test_the_list_is_searched_ordered_and_paged(admin: Api, project: Project, other_project: Project) -> None:
    assert list(counts_by_name(admin, search="TW")) == ["two"]
    assert list(counts_by_name(admin, ordering="-name")) == ["two", "one"]
    page = admin.get(PATH, page=2, pageSize=1).data
    assert ([item["name"] for item in page["items"]], page["total"]) == (["two"], 2)
    assert admin.get(PATH, ordering="gpus").status == 400
    assert admin.get(PATH, pageSize=1000).status == 400


def test_as_many_queries_for_thirty_projects_as_for_two(
    admin: Api, project: Project, other_project: Project, cluster: Cluster
) -> None:
    with CaptureQueriesContext(connection) as few:
        assert len(admin.get(PATH, pageSize=100).ids) == 2
    for number in range(28):
        added = Project.objects.create(name=f"more {number}")
        Membership.objects.create(project=added, user=make_user(f"person-{number}"), role=Role.MEMBER)
        a_task(added, cluster, TaskState.RUNNING, 1)
    with CaptureQueriesContext(connection) as many:
        assert len(admin.get(PATH, pageSize=100).ids) == 30
    assert len(many) == len(few) <= 6
