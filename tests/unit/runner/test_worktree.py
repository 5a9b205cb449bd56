"""A task's working tree: made of its snapshot, kept over attempts, and never a way out of it."""

import os
import tempfile
import threading
from pathlib import Path

import pytest

from fermi.runner import worktree
from fermi.runner.code import CodeDeliveryError
from tests import packages
from tests.polling import until

FILES = {"train.py": "print(1)\n", "lib/word.py": "WORD = 1\n", "lib/deep/other.py": "X = 2\n"}


class Given:
    def __init__(self, top: Path) -> None:
        self.archives, self.tree = top / "archives", top / "trees" / "task-1" / "code"
        self.snapshot = packages.archive(self.archives, FILES)
        self.folder = self.archives / self.snapshot

    def check_out(self, attempt: str) -> None:
        worktree.check_out_tree(str(self.folder), self.snapshot, str(self.tree), attempt)

    def texts(self) -> dict[str, str]:
        files = (path for path in self.tree.rglob("*") if path.is_file() and not path.is_symlink())
        return {path.relative_to(self.tree).as_posix(): path.read_text() for path in files}


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return Given(tmp_path)


def test_a_new_tree_equals_the_snapshot(given):
    given.check_out("task-1-1")
    assert given.texts() == FILES
    assert sorted(path.name for path in given.tree.parent.iterdir()) == [
        "code", "code.attempt", "code.lock", "code.manifest",
    ]  # fmt: skip


def test_the_next_attempt_keeps_new_files_and_restores_snapshot_files(given):
    given.check_out("task-1-1")
    (given.tree / "out").mkdir()
    (given.tree / "out" / "last.pt").write_text("step 30")
    (given.tree / "lib" / "cache.bin").write_text("kept")
    (given.tree / "train.py").write_text("print(2)\n")
    (given.tree / "lib" / "word.py").unlink()
    (given.tree / "lib" / "deep" / "other.py").chmod(0o600)
    before = (given.tree / "out" / "last.pt").stat().st_mtime_ns
    given.check_out("task-1-2")
    assert given.texts() == FILES | {"out/last.pt": "step 30", "lib/cache.bin": "kept"}
    assert (given.tree / "lib" / "deep" / "other.py").stat().st_mode & 0o777 == 0o644
    assert (given.tree / "out" / "last.pt").stat().st_mtime_ns == before


def test_unchanged_files_are_not_written_again(given):
    given.check_out("task-1-1")
    inode = (given.tree / "train.py").stat().st_ino
    (given.folder / "code.tar").unlink()
    given.check_out("task-1-2")
    assert (given.tree / "train.py").stat().st_ino == inode


def test_within_an_attempt_the_second_node_keeps_changes_of_the_first(given):
    given.check_out("task-1-1")
    (given.tree / "train.py").write_text("changed by a rank")
    given.check_out("task-1-1")
    assert given.texts()["train.py"] == "changed by a rank"


def test_a_folder_in_place_of_a_file_keeps_its_contents(given):
    given.check_out("task-1-1")
    (given.tree / "train.py").unlink()
    (given.tree / "train.py").mkdir()
    (given.tree / "train.py" / "new").write_text("new")
    given.check_out("task-1-2")
    assert given.texts()["train.py/new"] == "new"


@pytest.mark.parametrize("way", ["lib", "lib/deep", "train.py"])
def test_links_created_by_ranks_are_not_followed(given, tmp_path, way):
    given.check_out("task-1-1")
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("word.py", "deep/other.py", "train.py"):
        (outside / name).write_text("somebody else's")
    target = outside / ("train.py" if way == "train.py" else way.removeprefix("lib").lstrip("/"))
    place = given.tree / way
    os.rename(place, tmp_path / "moved")
    place.symlink_to(target)
    given.check_out("task-1-2")
    assert given.texts() == FILES
    assert not place.is_symlink()
    assert {path.read_text() for path in outside.rglob("*") if path.is_file()} == {"somebody else's"}


def test_a_hard_link_to_another_file_is_replaced(given, tmp_path):
    given.check_out("task-1-1")
    other = tmp_path / "other"
    other.write_text("somebody else's")
    (given.tree / "train.py").unlink()
    os.link(other, given.tree / "train.py")
    given.check_out("task-1-2")
    assert (given.texts()["train.py"], other.read_text()) == (FILES["train.py"], "somebody else's")


def test_a_pipe_in_place_of_a_file_does_not_block(given):
    given.check_out("task-1-1")
    (given.tree / "train.py").unlink()
    os.mkfifo(given.tree / "train.py")
    given.check_out("task-1-2")
    assert given.texts() == FILES


def test_a_damaged_archive_creates_no_tree_and_keeps_an_old_one(given):
    archive = given.folder / "code.tar"
    whole = archive.read_bytes()
    archive.write_bytes(whole.replace(b"WORD = 1", b"WORD = 2"))
    with pytest.raises(CodeDeliveryError, match="CODE_ARCHIVE_BROKEN"):
        given.check_out("task-1-1")
    assert not given.tree.exists()
    archive.write_bytes(whole)
    given.check_out("task-1-1")
    (given.tree / "new").write_text("new")
    (given.tree / "lib" / "word.py").unlink()
    archive.write_bytes(whole.replace(b"WORD = 1", b"WORD = 2"))
    with pytest.raises(CodeDeliveryError, match="CODE_ARCHIVE_BROKEN"):
        given.check_out("task-1-2")
    assert given.texts()["new"] == "new"
    assert not list(given.tree.parent.glob("*.new-*"))


def test_a_folder_that_cannot_be_created_is_the_cause(given, tmp_path):
    (tmp_path / "trees").write_text("a file")
    with pytest.raises(CodeDeliveryError, match="CODE_NOT_UNPACKED") as found:
        given.check_out("task-1-1")
    assert str(tmp_path / "trees") in found.value.params["path"]


def test_the_second_process_waits_for_the_first(given):
    given.tree.parent.mkdir(parents=True)
    second = threading.Thread(target=given.check_out, args=("task-1-1",))
    waits = threading.Event()
    with worktree.lock_tree(str(given.tree)):
        second.start()

        def other() -> None:
            with worktree.lock_tree(str(given.tree), waits.set):
                pass

        third = threading.Thread(target=other)
        third.start()
        until(waits.is_set)
        assert not given.tree.exists()
    for thread in (second, third):
        thread.join()
    assert given.texts() == FILES


@pytest.fixture
def common(given):
    """Root may do what modes forbid: another user for as long."""
    if os.geteuid():
        yield given
        return
    with tempfile.TemporaryDirectory() as top:
        made = Given(Path(top))
        for path in (Path(top), *Path(top).rglob("*")):
            os.chown(path, 4321, -1)
        os.seteuid(4321)
        try:
            yield made
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o500])
@pytest.mark.parametrize("way", ["", "lib", "lib/deep"])
def test_a_folder_without_permissions_is_reopened(common, way, mode):
    common.check_out("task-1-1")
    (common.tree / way / "new").write_text("new")
    for name in FILES:
        (common.tree / name).unlink()
    (common.tree / way).chmod(mode)
    common.check_out("task-1-2")
    assert common.texts() == {**FILES, str(Path(way, "new")): "new"}
    assert (common.tree / way).stat().st_mode & 0o777 == mode | 0o700


def test_a_folder_is_not_opened_through_a_link(common):
    common.check_out("task-1-1")
    outside = common.tree.parent / "outside"
    outside.mkdir()
    outside.chmod(0o000)
    (common.tree / "lib").rename(common.tree / "moved")
    (common.tree / "lib").symlink_to(outside)
    common.check_out("task-1-2")
    assert outside.stat().st_mode & 0o777 == 0
    assert not (common.tree / "lib").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_files_belong_to_the_ranks_user(given):
    worktree.check_out_tree(
        str(given.folder), given.snapshot, str(given.tree), "task-1-1", worktree.TreeOwner(4321, 4322)
    )
    found = {(path.lstat().st_uid, path.lstat().st_gid) for path in (given.tree, *given.tree.rglob("*"))}
    assert found == {(4321, 4322)}
    assert given.tree.parent.stat().st_uid == 0


class TestCheckpointOfAnotherTask:
    """The script is not told where it is: it looks where it saves its own."""

    @pytest.fixture
    def other(self, given: Given) -> Path:
        folder = given.tree.parent.with_name("task-0") / "code" / "out"
        folder.mkdir(parents=True)
        return folder

    def check_out(self, given: Given, checkpoint: object) -> None:
        worktree.check_out_tree(
            str(given.folder), given.snapshot, str(given.tree), "task-1-1", checkpoint=str(checkpoint)
        )

    def test_a_file_is_copied_to_the_same_place(self, given: Given, other: Path) -> None:
        (other / "ckpt.pt").write_text("step 30")
        self.check_out(given, other / "ckpt.pt")
        assert given.texts() == FILES | {"out/ckpt.pt": "step 30"}
        (given.tree / "out" / "ckpt.pt").write_text("step 40")
        assert (other / "ckpt.pt").read_text() == "step 30"

    def test_a_folder_is_copied_without_links_and_pipes(self, given: Given, other: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        (other / "step_30" / "deep").mkdir(parents=True)
        (other / "step_30" / "deep" / "model.bin").write_text("weights")
        (other / "step_30" / "link").symlink_to(tmp_path / "secret")
        os.mkfifo(other / "step_30" / "pipe")
        self.check_out(given, other / "step_30")
        assert given.texts() == FILES | {"out/step_30/deep/model.bin": "weights"}
        assert [path.name for path in (given.tree / "out" / "step_30").iterdir()] == ["deep"]

    def test_what_the_tree_has_stays(self, given: Given, other: Path) -> None:
        (other.parent / "train.py").write_text("print(3)\n")
        self.check_out(given, other.parent / "train.py")
        assert given.texts() == FILES

    def test_no_link_on_the_way_is_followed(self, given: Given, other: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "secret").write_text("secret")
        (other / "ckpt.pt").symlink_to(tmp_path / "elsewhere" / "secret")
        (other.parent / "run").symlink_to(tmp_path / "elsewhere")
        for path in (other / "ckpt.pt", other.parent / "run" / "secret"):
            self.check_out(given, path)
            assert given.texts() == FILES
            (given.tree.parent / "code.attempt").unlink()

    @pytest.mark.parametrize(
        "path",
        [
            "", "auto", "/elsewhere/ckpt.pt", "{trees}", "{trees}/task-0/code", "{trees}/task-0/code/gone.pt",
            "{trees}/task-0/other/ckpt.pt", "{trees}/task-1/code/train.py",
        ],
    )  # fmt: skip
    def test_any_other_path_changes_nothing(self, given: Given, other: Path, path: str) -> None:
        self.check_out(given, path.format(trees=given.tree.parent.parent))
        assert given.texts() == FILES
