"""What a task has written beside its script: found with few listings, whatever its ranks put there."""

import os
from pathlib import Path

import pytest

from apps.files import written_files
from apps.files.written_files import NewFiles
from fermi.engines.safe_tree import SafeTree, SafeTreeEntry
from fermi.jobs import snapshot
from fermi.jobs.snapshot import SnapshotFile

DEPTH = 300
CHAIN = "/".join("d" * DEPTH)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders that were listed, each as often as it was."""
    inner, found = SafeTree.list_entries, []

    def entries(self: SafeTree, path: str = "") -> list[SafeTreeEntry]:
        found.append(path)
        return inner(self, path)

    monkeypatch.setattr(SafeTree, "list_entries", entries)
    return found


def made(folder: Path, *paths: str) -> NewFiles:
    """A working tree as an attempt begins in it."""
    for path in paths:
        (folder / "code" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "code" / path).write_text("")
    (folder / "code.manifest").write_bytes(
        snapshot.serialize_manifest(SnapshotFile(path, 0o644, 0, "0" * 64) for path in paths)
    )
    (folder / "code.attempt").write_text("task-1-1")
    for path in paths:
        os.utime(folder / "code" / path, (1, 1))
    return NewFiles(folder)


def files(tree: NewFiles, path: str = "") -> list[str]:
    return [entry.path for entry in tree.walk(path) if not entry.folder]


def test_each_folder_above_a_new_file_is_listed_at_most_twice(tmp_path: Path, listed: list[str]) -> None:
    beside = [f"{CHAIN[: 2 * at + 1]}/a{at}/kept.py" for at in range(0, DEPTH, 10)]
    tree = made(tmp_path, f"{CHAIN}/kept.py", *beside)
    (tmp_path / "code" / CHAIN / "new").write_text("new")
    assert files(tree) == [f"{CHAIN}/new"]
    assert max(listed.count(path) for path in listed) == 2


def test_folders_of_the_snapshot_are_shown_if_they_have_new_files(tmp_path: Path) -> None:
    kept = ("a/kept.py", "a/z/kept.py", "b/empty/kept.py", "b/kept.py", "c/kept.py", "c/x/kept.py", "c/y/kept.py")
    tree = made(tmp_path, *kept)
    for name in ("a/own/deep/new", "b/__pycache__/kept.pyc", "c/x/new"):
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text("new")
    (tmp_path / "code" / "b" / "own").mkdir()
    assert [entry.path for entry in tree.list_entries()] == ["a", "c"]
    assert [entry.path for entry in tree.list_entries("b")] == ["b/own"]
    assert files(tree) == ["a/own/deep/new", "c/x/new"]
    assert [entry.path for entry in tree.list_entries("c")] == ["c/x"]


def test_a_manifest_above_the_limit_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "train.py")
    manifest = tmp_path / "code.manifest"
    monkeypatch.setattr(written_files, "get_max_manifest_bytes", lambda: manifest.stat().st_size)
    assert files(NewFiles(tmp_path)) == []
    monkeypatch.setattr(written_files, "get_max_manifest_bytes", lambda: manifest.stat().st_size - 1)
    assert files(NewFiles(tmp_path)) == ["train.py"], "nothing is known of what it had"
    monkeypatch.undo()
    os.truncate(manifest, 1 << 40)  # more than fits into memory
    assert files(NewFiles(tmp_path)) == ["train.py"]
