"""The cache of libraries of a project: who sees its size, who has it cleaned, and that cleaning keeps the limit."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.clusters.models import Cluster
from apps.common import wakeups
from apps.common.clock import now
from apps.files.models import LibraryCache
from apps.training import tasks
from apps.training.models import Task
from apps.training.services.library_caches import find_busy_since
from apps.training.states import TaskState
from fermi.engines import library_cache
from fermi.engines.library_cache import RELATIME_SECONDS
from tests.api.conftest import Api, make_user
from tests.apps.attempts import begin_attempt

pytestmark = pytest.mark.database

CACHE = "/projects/project-one/cache"
DAY = 86_400.0
KIB = 1 << 10


@pytest.fixture(autouse=True)
def relatime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_cache, "read_access_delay", lambda folder: RELATIME_SECONDS)


@pytest.fixture
def cache(project: Project, settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    folder = tmp_path / "homes" / project.pk / ".cache"
    for path, age in (
        ("huggingface/hub/models--gpt2/blobs/ab", 9 * DAY),
        ("torch/hub/checkpoints/resnet.pth", 3 * DAY),
    ):
        file = folder / path
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * 200 * KIB)
        for one in (file, *file.parents[:3]):
            os.utime(one, (time.time() - age,) * 2)
    return folder


def test_members_see_size_limit_and_largest_units(viewer: Api, stranger: Api, anonymous: Api, cache: Path) -> None:
    assert viewer.get(CACHE).data["measuredAt"] is None
    tasks.clean_caches()
    found = viewer.get(CACHE).data
    assert 400 * KIB <= found["sizeBytes"] < 500 * KIB
    assert (found["maxBytes"], found["units"], found["excessBytes"]) == (200 << 30, 2, 0)
    assert {unit["path"] for unit in found["largest"]} == {
        "huggingface/hub/models--gpt2", "torch/hub/checkpoints/resnet.pth",
    }  # fmt: skip
    assert (found["complete"], found["mayClean"], found["error"]) == (True, False, "")
    assert (stranger.get(CACHE).status, anonymous.get(CACHE).status) == (404, 401)


def test_the_projects_own_limit_is_kept_and_the_oldest_goes_first(admin: Api, owner: Api, cache: Path) -> None:
    assert admin.put("/projects/project-one/limits", {"maxCacheBytes": 300 * KIB}).data["maxCacheBytes"] == 300 * KIB
    tasks.clean_caches()
    found = owner.get(CACHE).data
    assert [unit["path"] for unit in found["largest"]] == ["torch/hub/checkpoints/resnet.pth"]
    assert (found["maxBytes"], found["freedBytes"] >= 200 * KIB, found["excessBytes"]) == (300 * KIB, True, 0)
    cleaned = found["cleanedAt"]
    tasks.clean_caches()
    assert owner.get(CACHE).data["cleanedAt"] == cleaned, "there was nothing to remove a second time"


def test_without_a_limit_nothing_is_removed(owner: Api, cache: Path, settings: Any) -> None:
    settings.CACHE_MAX_GB = 0
    tasks.clean_caches()
    found = owner.get(CACHE).data
    assert (found["maxBytes"], found["units"], found["cleanedAt"]) == (None, 2, None)


def test_maintainers_have_everything_removed_that_no_task_uses(
    project: Project, colleague: Api, viewer: Api, stranger: Api, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(wakeups, "enqueue_after_commit", lambda *words: asked.append(words))
    maintainer = Api(make_user("boss", project, Role.MAINTAINER))
    assert (colleague.post(f"{CACHE}/clean", {}).status, viewer.post(f"{CACHE}/clean", {}).status) == (403, 403)
    assert stranger.post(f"{CACHE}/clean", {}).status == 404
    assert maintainer.post(f"{CACHE}/clean", {"keepBytes": -1}).status == 400
    assert maintainer.post(f"{CACHE}/clean", {}).status == 200
    assert asked == [("training.caches", "project-one", "0")]
    assert AuditEvent.objects.filter(action="cache.clean", target="project-one").count() == 1
    tasks.clean_caches(*asked[0][1:])
    assert maintainer.get(CACHE).data["units"] == 0
    assert not (cache / "huggingface/hub/models--gpt2").exists()


def make_task(project: Project, user: User) -> Task:
    """Return a task that runs its first attempt."""
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=Cluster.objects.create(name="local", backend="local"),
        name="t", framework="pytorch-ddp", node_count=1, total_gpus=1, world_size=1, master="env", request={}, spec={},
        summary={}, state=TaskState.RUNNING, state_since=now(), due_at=now(), created_at=now(),
    )  # fmt: skip
    begin_attempt(task, 1)
    return task


def test_what_a_running_task_may_read_stays_and_is_reported(
    project: Project, owner: Api, admin: Api, cache: Path
) -> None:
    assert owner.user
    attempt = make_task(project, owner.user).attempts.get()
    attempt.created_at = now() - timedelta(days=3)
    attempt.save()
    assert find_busy_since(project.pk) == attempt.created_at.timestamp()
    admin.put("/projects/project-one/limits", {"maxCacheBytes": 0})
    tasks.clean_caches()
    found = owner.get(CACHE).data
    assert [unit["path"] for unit in found["largest"]] == ["torch/hub/checkpoints/resnet.pth"]
    assert found["excessBytes"] >= 200 * KIB
    attempt.ended_at = now()
    attempt.save()
    assert find_busy_since(project.pk) is None
    tasks.clean_caches()
    assert owner.get(CACHE).data["units"] == 0


def test_a_link_in_place_of_the_cache_is_reported_and_not_followed(
    project: Project, owner: Api, settings: Any, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "key").write_text("k")
    (tmp_path / "homes" / project.pk).mkdir(parents=True)
    (tmp_path / "homes" / project.pk / ".cache").symlink_to(tmp_path / "precious")
    (tmp_path / "homes" / "no-project").mkdir()
    tasks.clean_caches("", "0")
    assert owner.get(CACHE).data["error"]
    assert (tmp_path / "precious" / "key").read_text() == "k"
    (tmp_path / "homes" / project.pk / ".cache").unlink()
    tasks.clean_caches()
    assert not LibraryCache.objects.exists(), "without a cache nothing is known of one"
