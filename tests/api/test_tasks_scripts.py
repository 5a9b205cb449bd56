"""Downloading a task as scripts to start by hand."""

import gzip
import io
import tarfile

import pytest
from django.utils import timezone

from apps.clusters.models import DevEnvironment
from apps.training.models import Attempt, Checkpoint, Task
from tests.api.test_tasks_create import DOCUMENT, changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


@pytest.fixture
def task(colleague) -> Task:
    return Task.objects.get(pk=colleague.post("/training-tasks", DOCUMENT).data["taskId"])


def unpacked(content: bytes) -> dict[str, tuple[str, int]]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as tar:
        return {one.name: (tar.extractfile(one).read().decode(), one.mode) for one in tar}


def test_a_viewer_downloads_a_folder_with_one_script_per_node(task, viewer):
    answer = viewer.get(f"/training-tasks/{task.pk}/scripts", target="shell")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/gzip"
    folder = f"{task.pk}-1-shell"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{folder}.tar.gz"'
    files = unpacked(answer.body)
    started = [name for name in files if "/start-node-" in name]
    assert started == [f"{folder}/start-node-{rank}.sh" for rank in range(task.node_count)]
    assert all(mode == (0o755 if name.endswith(".sh") else 0o644) for name, (_, mode) in files.items())
    assert f"# {task.pk}-1：手动启动" in files[f"{folder}/README.md"][0]
    assert f'"WORLD_SIZE={task.world_size}"' in files[f"{folder}/start-node-0.sh"][0]


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("torchrun", "start-all.sh"),
        ("compose", "docker-compose.yml"),
        ("kubernetes", "apply.sh"),
    ],
)
def test_each_target_has_its_files(task, colleague, target, file):
    files = unpacked(colleague.get(f"/training-tasks/{task.pk}/scripts", target=target).body)
    assert f"{task.pk}-1-{target}/{file}" in files


def test_downloads_are_reproducible(task, colleague):
    first, second = (colleague.get(f"/training-tasks/{task.pk}/scripts").body for _ in range(2))
    assert first == second


def test_scripts_resume_from_the_newest_checkpoint(task, colleague):
    moment = timezone.now()
    Attempt.objects.create(task=task, number=3, master_port=29777, plan={}, created_at=moment)
    Checkpoint.objects.create(task=task, attempt=3, step=5, path="/c/checkpoint_step_5.pt", at=moment)
    Task.objects.filter(pk=task.pk).update(attempt=3)
    script, _ = unpacked(colleague.get(f"/training-tasks/{task.pk}/scripts").body)[f"{task.pk}-3-shell/start-node-0.sh"]
    assert "--resume_from auto" in script
    assert '"MASTER_PORT=29777"' in script
    moved = colleague.get(f"/training-tasks/{task.pk}/scripts", masterPort=29888).body
    assert '"MASTER_PORT=29888"' in unpacked(moved)[f"{task.pk}-3-shell/start-node-0.sh"][0]


def test_a_target_that_cannot_be_rendered_is_named(task, colleague):
    unknown = colleague.get(f"/training-tasks/{task.pk}/scripts", target="shel")
    assert (unknown.status, unknown.problems) == (400, {"target": "TARGET_UNKNOWN"})
    DevEnvironment.objects.update(image="")
    task = colleague.post("/training-tasks", DOCUMENT).data["taskId"]
    without_image = colleague.get(f"/training-tasks/{task}/scripts", target="kubernetes")
    assert set(without_image.problems.values()) == {"IMAGE_MISSING"}
    config = {**DOCUMENT["distributedConfig"], "framework": "jax"}
    jax = colleague.post("/training-tasks", changed(distributedConfig=config)).data["taskId"]
    refused = colleague.get(f"/training-tasks/{jax}/scripts", target="torchrun")
    assert refused.problems == {"target": "TORCHRUN_NOT_FOR_FRAMEWORK"}
