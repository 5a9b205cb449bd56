"""Whose checkpoints a new task may go on from."""

import os
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.training.models import Task
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_actions import SINGLE, end
from tests.api.test_tasks_create import DOCUMENT

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")
TASKS = "/training-tasks"


@pytest.fixture(autouse=True)
def data(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path / "data"
    return tmp_path / "data"


def saved(task: Task, name: str = "step-5.pt") -> str:
    path = Path(task.spec["checkpoint_dir"], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"weights")
    return str(path)


@pytest.fixture
def ours(colleague: Api) -> Task:
    return Task.objects.get(pk=colleague.post(TASKS, SINGLE).data["taskId"])


@pytest.fixture
def theirs(stranger: Api, other_project: Project, cluster: Cluster) -> Task:
    DevEnvironment.objects.create(pk="env-other", name="env-other", project=other_project, cluster=cluster,
                                  zone=AvailabilityZone.objects.first(), gpu_count=1, emulated=True)  # fmt: skip
    answer = stranger.post(TASKS, {**SINGLE, "environmentIds": ["env-other"]})
    return Task.objects.get(pk=answer.data["taskId"])


def create_resuming_task(api: Api, path: str) -> tuple[int, Any]:
    answer = api.post(TASKS, {**SINGLE, "resumeFrom": path})
    return answer.status, answer.body.get("errors")


def test_a_checkpoint_of_the_users_project_is_accepted_and_its_path_normalized(colleague: Api, ours: Task) -> None:
    path = Path(saved(ours))
    for spelt in (str(path), f"{path.parent}/../{ours.pk}//./{path.name}", str(path.parent)):
        answer = colleague.post(TASKS, {**SINGLE, "resumeFrom": spelt})
        assert answer.status == 201
        assert Task.objects.get(pk=answer.data["taskId"]).spec["resume_from"] == os.path.normpath(spelt)


def test_files_saved_next_to_the_script_count_as_the_tasks_own(
    colleague: Api, ours: Task, theirs: Task, data: Path
) -> None:
    for task in (ours, theirs):
        path = data / "trees" / task.pk / "code" / "out" / "last.pt"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"weights")
        status, problems = create_resuming_task(colleague, str(path))
        assert (status == 201) is (task is ours), problems


@pytest.mark.parametrize("lang", ["zh-CN", "en"])
def test_foreign_and_missing_checkpoints_get_the_same_error(
    colleague: Api, theirs: Task, data: Path, lang: str
) -> None:
    colleague.lang = lang
    there, missing = saved(theirs), f"{data}/checkpoints/{theirs.pk}/step-6.pt"
    (data / "logs" / theirs.pk).mkdir(parents=True)
    (data / "token").write_text("fermi_0123")
    (status, [problem]), (other_status, [other]) = (
        create_resuming_task(colleague, there),
        create_resuming_task(colleague, missing),
    )
    assert (status, other_status) == (400, 400)
    assert (problem["field"], problem["error"]) == ("resumeFrom", "RESUME_NOT_FOUND")
    assert there in problem["message"]
    assert problem == {key: str(value).replace(missing, there) for key, value in other.items()}
    for path in (
        data / "token",
        data / "logs" / theirs.pk,
        data / "checkpoints",
        data,
        data / "checkpoints" / "nobody",
    ):
        path.exists() or path.mkdir(parents=True)
        assert [one["error"] for one in create_resuming_task(colleague, str(path))[1]] == ["RESUME_NOT_FOUND"], path


def test_links_and_dots_do_not_lead_to_foreign_checkpoints(
    colleague: Api, ours: Task, theirs: Task, data: Path, tmp_path: Path
) -> None:
    there, own = Path(saved(theirs)), Path(saved(ours))
    (own.parent / "link").symlink_to(there.parent)
    (own.parent / "file").symlink_to(there)
    (data / "workspace").mkdir()
    (data / "workspace" / "link").symlink_to(there)
    (tmp_path / "elsewhere").symlink_to(data)
    for path in (
        own.parent / "link" / there.name, own.parent / "file", data / "workspace" / "link",
        f"{own.parent}/../{theirs.pk}/{there.name}", f"{data}/workspace/../checkpoints/{theirs.pk}",
        tmp_path / "elsewhere" / there.relative_to(data), f"/{there}",
    ):  # fmt: skip
        assert [one["error"] for one in create_resuming_task(colleague, str(path))[1]] == ["RESUME_NOT_FOUND"], path
    status, problems = create_resuming_task(colleague, str(tmp_path / "elsewhere" / own.relative_to(data)))
    assert status == 201 or [one["error"] for one in problems] == ["PATH_NOT_GIVEN"], "no rank sees it by that name"


def test_a_data_directory_made_of_links_is_accepted(
    colleague: Api, stranger: Api, theirs: Task, settings: Any, tmp_path: Path
) -> None:
    """Checkpoints on another disk."""
    (tmp_path / "disk").mkdir()
    settings.DATA_DIR.mkdir(exist_ok=True)
    (settings.DATA_DIR / "checkpoints").symlink_to(tmp_path / "disk")
    there = saved(theirs)
    for path in (there, os.path.realpath(there)):
        assert [one["error"] for one in create_resuming_task(colleague, path)[1]] == ["RESUME_NOT_FOUND"], path
    assert stranger.post(TASKS, {**SINGLE, "environmentIds": ["env-other"], "resumeFrom": there}).status == 201


def test_a_cluster_mount_path_does_not_lead_outside(colleague: Api, ours: Task, theirs: Task, cluster: Cluster) -> None:
    """There pods see it under another path, and this is what a job is planned with."""
    cluster.backend, cluster.connection = "agent", {"data": {"mountPath": "/mnt/fermi"}}
    cluster.save()
    DevEnvironment.objects.filter(pk="env-001").update(engine={"workers": ["gn5-0", "gn5-1"]})
    saved(theirs)
    own = saved(ours)
    path = f"/mnt/fermi/checkpoints/{theirs.pk}/step-5.pt"
    for spelt in (path, f"//{path}", f"/mnt/../mnt/fermi/checkpoints/{theirs.pk}/step-5.pt"):
        assert [one["error"] for one in create_resuming_task(colleague, spelt)[1]] == ["RESUME_NOT_FOUND"], spelt
    answer = colleague.post(TASKS, {**SINGLE, "resumeFrom": f"/mnt/fermi/checkpoints/{ours.pk}/step-5.pt"})
    assert Task.objects.get(pk=answer.data["taskId"]).spec["resume_from"] == own


def test_a_preview_reports_a_forbidden_checkpoint_and_shows_the_rest(colleague: Api, theirs: Task) -> None:
    shown = colleague.post(f"{TASKS}/preview", {**DOCUMENT, "resumeFrom": saved(theirs)}).data
    assert [problem["error"] for problem in shown["problems"]] == ["RESUME_NOT_FOUND"]
    assert shown["worldSize"] == 14


def test_members_of_both_projects_and_administrators_may_resume(
    colleague: Api, admin: Api, theirs: Task, other_project: Project
) -> None:
    path = saved(theirs)
    assert create_resuming_task(admin, path)[0] == 201
    Membership.objects.create(user=User.objects.get(username="colleague"), project=other_project, role=Role.VIEWER)
    assert create_resuming_task(colleague, path)[0] == 201


def test_a_retry_checks_access_to_the_checkpoint_again(
    colleague: Api, owner: Api, theirs: Task, other_project: Project
) -> None:
    """Its request stands in the clone; whoever sends it is asked anew."""
    path = saved(theirs)
    mine = Membership.objects.create(user=User.objects.get(username="colleague"), project=other_project)
    task = Task.objects.get(pk=asked_for(colleague, path))
    mine.delete()
    assert task.spec["resume_from"] == path
    end(task, TaskState.FAILED)
    for api in (colleague, owner):
        assert api.post(f"{TASKS}/{task.pk}/retry").problems == {"resumeFrom": "RESUME_NOT_FOUND"}
        request = api.post(f"{TASKS}/{task.pk}/clone").data["request"]
        assert api.post(TASKS, request).problems == {"resumeFrom": "RESUME_NOT_FOUND"}


def asked_for(api: Api, path: str) -> str:
    return str(api.post(TASKS, {**SINGLE, "resumeFrom": path}).data["taskId"])
