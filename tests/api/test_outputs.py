"""What tasks write: counted, listed, downloaded, brought to object storage when the task has ended, deleted with it."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.common.clock import now
from apps.files.models import File, Outputs
from apps.files.services import outputs as services
from apps.files.services import store_sync
from apps.training.logs import outputs
from apps.training.models import Checkpoint, Task
from apps.training.states import TaskState
from fermi.runner import worktree
from tests import packages
from tests.api.conftest import BASE, Api
from tests.api.test_files import bucket, store  # noqa: F401
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model", "store")]
FOLDER = pytest.mark.parametrize("store", ["folder"], indirect=True)


@pytest.fixture
def task(colleague: Api) -> Task:
    return Task.objects.get(pk=colleague.post("/training-tasks", changed()).data["taskId"])


@pytest.fixture
def written(task: Task, settings: Any) -> dict[str, bytes]:
    files = {"model.pt": os.urandom(5000), "plots/loss.png": b"png", "plots/deep/曲线.txt": b""}
    for name, data in files.items():
        path = Path(settings.DATA_DIR, "outputs", task.pk, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return files


def end(task: Task) -> None:
    ended = {"state": TaskState.SUCCEEDED, "due_at": None, "ended_at": timezone.now()}
    Task.objects.filter(pk=task.pk).update(**ended)
    Outputs.objects.update(due_at=now())
    outputs.update_outputs()


def get(api: Api, where: str, **query: str) -> Any:
    answer = api.client.get(BASE + where, query_params=query, headers={"Authorization": f"Bearer {api.token}"})
    answer.body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return answer


def listed(api: Api, task: Task, path: str = "", **more: Any) -> list[str]:
    answer = api._send("GET", f"/training-tasks/{task.pk}/outputs", query={"path": path, **more})
    return [item["path"] for item in answer.data["items"]]


def test_a_task_has_variables_for_its_outputs_and_project_files(task: Task, settings: Any, store: Any) -> None:  # noqa: F811
    assert task.spec["output_dir"] == f"{settings.DATA_DIR}/outputs/{task.pk}"
    assert task.spec["files_url" if store.remote else "files_dir"] == store.get_location("project-one")


def test_outputs_are_listed_alike_during_and_after_a_task(
    viewer: Api,
    stranger: Api,
    task: Task,
    written: dict[str, bytes],
    settings: Any,
    store: Any,  # noqa: F811
) -> None:
    where = f"/training-tasks/{task.pk}/outputs"
    for _ in range(2):
        assert listed(viewer, task) == ["plots", "model.pt"]
        assert listed(viewer, task, "plots") == ["plots/deep", "plots/loss.png"]
        assert listed(viewer, task, search="曲") == ["plots/deep/曲线.txt"]
        assert get(viewer, f"{where}/content", path="model.pt").body == written["model.pt"]
        assert get(viewer, f"{where}/content", path="plots").status_code == 409
        whole = io.BytesIO(get(viewer, f"{where}/archive", format="tar").body)
        with tarfile.open(fileobj=whole) as archive:
            assert {one.name: archive.extractfile(one).read() for one in archive if one.isfile()} == written
        for door in ("", "/summary", "/content?path=model.pt", "/archive"):
            assert stranger.client.get(
                f"{BASE}{where}{door}", headers={"Authorization": f"Bearer {stranger.token}"}
            ).status_code == 404  # fmt: skip
        end(task)
    summary = viewer.get(f"{where}/summary").data
    assert (summary["sizeBytes"], summary["count"], summary["stored"]) == (5003, 3, store.remote)
    assert viewer.get("/projects/project-one/files/use").data["outputBytes"] == 5003
    assert Path(settings.DATA_DIR, "outputs", task.pk).exists() == (not store.remote)
    if store.remote:
        found = get(viewer, f"{where}/content", path="model.pt")["ETag"]
        assert found == f'"{hashlib.sha256(written["model.pt"]).hexdigest()}"'
    assert Outputs.objects.get().due_at is None


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_files_collected_before_a_crash_are_not_collected_again(
    viewer: Api,
    task: Task,
    written: dict[str, bytes],
    store: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner, brought = type(store).put, []

    def dies(self: Any, source: Path, key: str) -> None:
        if len(brought) == 2:
            brought.append("")
            raise KeyboardInterrupt
        inner(self, source, key)
        brought.append(key)

    monkeypatch.setattr(type(store), "put", dies)
    with pytest.raises(KeyboardInterrupt):
        end(task)
    outputs.update_outputs()
    assert len(brought) == 3  # the claim of who died holds for a while
    Outputs.objects.update(due_at=now())
    outputs.update_outputs()
    assert len(set(brought)) == len(brought) == 4
    assert listed(viewer, task) == ["plots", "model.pt"]


def test_outputs_are_deleted_with_their_task(
    colleague: Api, task: Task, written: dict[str, bytes], settings: Any
) -> None:
    end(task)
    assert colleague.delete(f"/training-tasks/{task.pk}").status == 200
    store_sync.apply_due()
    assert not Path(settings.DATA_DIR, "outputs", task.pk).exists()
    assert not Outputs.objects.exists()
    assert not File.objects.exists()


@pytest.fixture
def tree(task: Task, settings: Any, tmp_path: Path) -> Path:
    """What an attempt begins in, as its node makes it."""
    files = {"train.py": "import lib.word\n", "lib/word.py": "WORD = 1\n", "data/deep/rows.csv": "1\n"}
    snapshot = packages.archive(tmp_path / "archives", files)
    place = Path(settings.DATA_DIR, "trees", task.pk, "code")
    worktree.check_out_tree(str(tmp_path / "archives" / snapshot), snapshot, str(place), f"{task.pk}-1")
    return place


def test_files_written_next_to_the_script_are_outputs(
    viewer: Api,
    colleague: Api,
    task: Task,
    tree: Path,
    written: dict[str, bytes],
    settings: Any,
    store: Any,  # noqa: F811
) -> None:
    beside = {"runs/a/events": b"curve", "out/last.pt": b"weights", "lib/made.bin": b"new", "plots/more.txt": b"more"}
    for name, data in beside.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    (tree / "lib" / "__pycache__").mkdir()
    (tree / "lib" / "__pycache__" / "word.pyc").write_bytes(b"")
    where, whole = f"/training-tasks/{task.pk}/outputs", written | beside
    for _ in range(2):
        assert listed(viewer, task) == ["lib", "out", "plots", "runs", "model.pt"]
        assert listed(viewer, task, "lib") == ["lib/made.bin"]
        assert listed(viewer, task, "plots") == ["plots/deep", "plots/loss.png", "plots/more.txt"]
        assert listed(viewer, task, search="last") == ["out/last.pt"]
        assert get(viewer, f"{where}/content", path="out/last.pt").body == b"weights"
        with tarfile.open(fileobj=io.BytesIO(get(viewer, f"{where}/archive", format="tar").body)) as archive:
            assert {one.name: archive.extractfile(one).read() for one in archive if one.isfile()} == whole
        end(task)
    assert viewer.get(f"{where}/summary").data["count"] == len(whole)
    assert tree.exists(), "a retry may go on from what is in it"
    assert colleague.delete(f"/training-tasks/{task.pk}").status == 200
    assert not tree.parent.exists()


@FOLDER
def test_a_snapshot_file_is_an_output_once_the_script_has_changed_it(viewer: Api, task: Task, tree: Path) -> None:
    assert listed(viewer, task) == []
    rows, ready = tree / "data" / "deep" / "rows.csv", (tree.parent / "code.attempt").stat().st_mtime
    rows.write_text("2\n")
    os.utime(rows, (ready + 1, ready + 1))
    assert listed(viewer, task) == ["data"]
    assert listed(viewer, task, search="rows") == ["data/deep/rows.csv"]
    (tree.parent / "code.manifest").write_text("not what it was")
    assert "train.py" in listed(viewer, task), "nothing is known of what it had"


@FOLDER
def test_files_of_a_running_task_are_counted_up_to_a_limit(
    viewer: Api, task: Task, tree: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MAX_COUNTED_FILES", 20)
    for folder in (tree / "lib" / "data", tree / "rows", Path(settings.DATA_DIR, "outputs", task.pk)):
        folder.mkdir(parents=True)
        for number in range(40):
            (folder / f"{folder.name}-{number}").write_text("1")
            (folder / f"link-{number}").symlink_to("elsewhere")
    Outputs.objects.update(due_at=now())
    outputs.update_outputs()
    assert 0 < viewer.get(f"/training-tasks/{task.pk}/outputs/summary").data["count"] <= 2 * 20
    end(task)
    assert viewer.get(f"/training-tasks/{task.pk}/outputs/summary").data["count"] == 3 * 40


@FOLDER
def test_links_in_a_working_tree_are_not_followed(viewer: Api, task: Task, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tree / "link").symlink_to(tmp_path / "secret")
    (tree.parent / "code.manifest").unlink()
    os.mkfifo(tree.parent / "code.manifest")
    assert "link" not in listed(viewer, task)
    assert get(viewer, f"/training-tasks/{task.pk}/outputs/content", path="link").status_code == 404
    tree.rename(tree.parent / "moved")
    tree.symlink_to(tmp_path)
    assert listed(viewer, task) == []


@FOLDER
def test_links_in_outputs_are_not_followed(viewer: Api, task: Task, settings: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = Path(settings.DATA_DIR, "outputs", task.pk)
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "above").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\xff\xfe")).write_text("no name that anybody could say")
    where = f"/training-tasks/{task.pk}/outputs"
    assert listed(viewer, task) == []
    for path in ("link", "above/secret", "pipe", "../../secret", "x/../../../secret", "/etc/passwd"):
        answer = get(viewer, f"{where}/content", path=path)
        assert (answer.status_code, json.loads(answer.body)["error"]) == (404, "FILE_NOT_FOUND")
    whole = io.BytesIO(get(viewer, f"{where}/archive", format="tar").body)
    with tarfile.open(fileobj=whole) as archive:
        assert archive.getnames() == []


@FOLDER
def test_a_checkpoint_is_downloaded_as_a_file_or_as_a_tar(
    viewer: Api, stranger: Api, task: Task, settings: Any
) -> None:
    own = Path(settings.DATA_DIR, "checkpoints", task.pk)
    (own / "step_2").mkdir(parents=True)
    (own / "step_1.pt").write_bytes(b"one")
    (own / "step_2" / "shard").write_bytes(b"two")
    (own / "step_2" / "link").symlink_to("/etc/passwd")
    (own / "step_4").symlink_to("/etc")
    for step, path in enumerate((own / "step_1.pt", own / "step_2", "/etc/passwd", own / "step_4"), 1):
        Checkpoint.objects.create(task=task, attempt=1, step=step, path=str(path), at=timezone.now())
    where = f"/training-tasks/{task.pk}/checkpoints/content"
    assert get(viewer, where, path=str(own / "step_1.pt")).body == b"one"
    with tarfile.open(fileobj=io.BytesIO(get(viewer, where, path=str(own / "step_2")).body)) as archive:
        assert archive.getnames() == ["step_2/shard"]
    assert json.loads(get(viewer, where, path="/etc/passwd").body)["error"] == "CHECKPOINT_ELSEWHERE"
    assert json.loads(get(viewer, where, path=str(own / "step_4")).body)["error"] == "CHECKPOINT_NOT_FOUND"
    assert json.loads(get(viewer, where, path=str(own)).body)["error"] == "CHECKPOINT_NOT_FOUND"
    assert get(stranger, where, path=str(own / "step_1.pt")).status_code == 404
