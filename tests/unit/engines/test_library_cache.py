"""The cache of libraries: what counts as a unit, which units are removed, and that no link leads out of it."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fermi.engines import library_cache
from fermi.engines.library_cache import RELATIME_SECONDS, clean_cache, measure_cache

PROJECT = "nlp"
HOUR, DAY = 3600.0, 86_400.0
PAGE = 4096


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "homes" / PROJECT / ".cache"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def relatime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_cache, "read_access_delay", lambda folder: RELATIME_SECONDS)


def write(cache: Path, path: str, *, age: float, pages: int = 1) -> Path:
    """Write a file that was last used `age` seconds ago."""
    file = cache / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * PAGE * pages)
    moment = time.time() - age
    os.utime(file, (moment, moment))
    for above in file.parents:
        if above == cache:
            break
        os.utime(above, (moment, moment))
    return file


def clean(cache: Path, pages: int, busy_since: float | None = None) -> list[str]:
    """Bound the cache to a number of pages, and return the units that were removed."""
    return [unit.path for unit in clean_cache(cache.parents[1], PROJECT, pages * PAGE, lambda: busy_since).removed]


def test_a_unit_is_a_model_a_file_of_torch_hub_a_kernel_or_the_folder_of_another_library(cache: Path) -> None:
    for path in (
        "huggingface/hub/models--gpt2/blobs/ab", "huggingface/hub/models--gpt2/refs/main",
        "huggingface/hub/datasets--wikitext/blobs/cd", "huggingface/datasets/parquet/x/y.arrow",
        "torch/hub/checkpoints/resnet.pth", "torch/hub/pytorch_vision_main/hubconf.py", "torch/kernels/one",
        "triton/ABC/kernel.cubin", "torchinductor/fxgraph/ab/abkey/graph", "torchinductor/cd/module.py",
        "torchinductor/triton/0/HASH/kernel.json", "whisper/large.pt", "model.bin",
    ):  # fmt: skip
        write(cache, path, age=DAY)
    units = {unit.path for unit in measure_cache(cache.parents[1], PROJECT).units}
    assert units == {
        "huggingface/hub/models--gpt2", "huggingface/hub/datasets--wikitext", "huggingface/datasets/parquet",
        "torch/hub/checkpoints/resnet.pth", "torch/hub/pytorch_vision_main", "torch/kernels", "triton/ABC",
        "torchinductor/fxgraph/ab/abkey", "torchinductor/cd/module.py", "torchinductor/triton/0/HASH", "whisper",
        "model.bin",
    }  # fmt: skip


def test_tokens_and_settings_of_people_are_counted_and_never_removed(cache: Path) -> None:
    kept = [
        write(cache, path, age=300 * DAY)
        for path in ("huggingface/token", "huggingface/accelerate/default_config.yaml", "huggingface/hub/version.txt",
                     "torch/hub/trusted_list", "huggingface/hub/.locks/models--gpt2/ab.lock", "fermi/programs/one")
    ]  # fmt: skip
    assert clean(cache, 0) == []
    assert all(file.exists() for file in kept)
    assert measure_cache(cache.parents[1], PROJECT).size >= len(kept) * PAGE


def test_whole_units_go_oldest_first_until_the_limit_holds(cache: Path) -> None:
    write(cache, "huggingface/hub/models--old/blobs/ab", age=9 * DAY)
    write(cache, "huggingface/hub/models--old/blobs/cd", age=3 * DAY)
    write(cache, "torch/hub/checkpoints/older.pth", age=4 * DAY)
    write(cache, "triton/NEW/kernel.cubin", age=2 * DAY)
    content = measure_cache(cache.parents[1], PROJECT)
    assert [unit.path for unit in sorted(content.units, key=lambda one: one.used_at)] == [
        "torch/hub/checkpoints/older.pth", "huggingface/hub/models--old", "triton/NEW",
    ]  # fmt: skip
    total = content.size // PAGE
    assert clean(cache, total) == [], "what holds already"
    assert clean(cache, total - 2) == ["torch/hub/checkpoints/older.pth", "huggingface/hub/models--old"]
    assert not (cache / "huggingface/hub/models--old").exists()
    assert (cache / "triton/NEW/kernel.cubin").exists()
    assert not (cache / library_cache.REMOVED_FOLDER).exists()
    assert clean(cache, total) == [], "a second time there is nothing to do"


def test_what_was_used_within_the_hour_stays(cache: Path) -> None:
    write(cache, "triton/JUST/kernel.cubin", age=HOUR / 2)
    assert clean(cache, 0) == []


def test_while_a_task_runs_only_what_it_cannot_have_read_is_removed(cache: Path) -> None:
    """With relatime a reading is recorded once a day: what was last used 20 hours before a task began may have been
    read by it."""
    began = time.time() - 10 * HOUR
    write(cache, "triton/UNSURE/kernel.cubin", age=30 * HOUR)
    write(cache, "triton/UNREAD/kernel.cubin", age=35 * HOUR)
    assert clean(cache, 0, busy_since=began) == ["triton/UNREAD"]
    assert clean(cache, 0) == ["triton/UNSURE"]


def test_nothing_is_removed_while_a_task_runs_where_reading_leaves_no_trace(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_cache, "read_access_delay", lambda folder: None)
    write(cache, "triton/OLD/kernel.cubin", age=300 * DAY)
    done = clean_cache(cache.parents[1], PROJECT, 0, time.time)
    assert (done.removed, done.excess > 0) == ([], True)
    assert clean(cache, 0) == ["triton/OLD"]


def test_a_task_that_begins_meanwhile_keeps_the_rest(cache: Path) -> None:
    write(cache, "triton/FIRST/kernel.cubin", age=3 * HOUR)
    write(cache, "triton/SECOND/kernel.cubin", age=2 * HOUR)
    answers = iter((None, time.time()))
    done = clean_cache(cache.parents[1], PROJECT, 0, lambda: next(answers))
    assert [unit.path for unit in done.removed] == ["triton/FIRST"]


@pytest.mark.parametrize(
    ("line", "delay"),
    [
        ("rw,relatime shared:1 - ext4 /dev/vda rw", RELATIME_SECONDS),
        ("rw - xfs /dev/vda rw", 0.0),
        ("rw,noatime - ext4 /dev/vda rw", None),
        ("rw,relatime - nfs4 host:/export rw", None),
        ("rw,relatime - fuse.juicefs JuiceFS rw", None),
    ],
)
def test_how_exact_times_of_access_are_is_read_from_the_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, delay: float | None
) -> None:
    monkeypatch.undo()
    device = os.stat(tmp_path).st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        f"22 1 {os.major(device)}:{os.minor(device)} / {tmp_path} {line}\n23 1 0:5 / /proc rw - proc p rw\n"
    )
    really_open: Callable[..., Any] = open
    monkeypatch.setattr("builtins.open", lambda path, *args, **named: really_open(table, *args, **named))
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert library_cache.read_access_delay(folder) == delay
    finally:
        os.close(folder)


def test_links_are_neither_followed_nor_counted(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "key").write_bytes(b"k" * 50 * PAGE)
    os.utime(precious / "key", (0, 0))
    (cache / "huggingface").symlink_to(precious)
    (cache / "other").symlink_to(precious / "key")
    (cache / "triton").mkdir()
    (cache / "triton" / "LINK").symlink_to(precious)
    write(cache, "whisper/large.pt", age=DAY)
    (cache / "whisper" / "out").symlink_to(precious)
    (cache / library_cache.REMOVED_FOLDER).symlink_to(precious)
    assert measure_cache(cache.parents[1], PROJECT).size < 50 * PAGE
    assert "whisper" not in clean(cache, 0), "a link in it is new"
    os.utime(cache / "whisper" / "out", (0, 0), follow_symlinks=False)
    os.utime(cache / "whisper", (0, 0))
    assert "whisper" in clean(cache, 0)
    assert (precious / "key").read_bytes() == b"k" * 50 * PAGE
    assert os.listdir(precious) == ["key"]


def test_a_link_in_place_of_the_cache_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "homes" / PROJECT
    home.mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (home / ".cache").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        clean_cache(tmp_path / "homes", PROJECT, 0, lambda: None)
    for name in ("", ".", "..", "a/b", "../homes"):
        with pytest.raises(OSError):
            measure_cache(tmp_path / "homes", name)


def test_what_a_killed_process_left_is_removed_by_the_next(cache: Path) -> None:
    write(cache, f"{library_cache.REMOVED_FOLDER}/0123/blobs/ab", age=0)
    assert clean(cache, 100) == []
    assert os.listdir(cache) == []


def test_a_tree_deeper_than_any_path_and_without_rights_is_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5000 folders in each other: opened one from the other, they would need as many descriptors."""
    at = os.open(cache, os.O_RDONLY)
    for name in ("triton", "DEEP", *["d" * 10] * 5000):
        os.mkdir(name, dir_fd=at)
        above, at = at, os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(above)
    os.close(at)
    locked = write(cache, "triton/LOCKED/in/kernel", age=DAY)
    for folder in (locked.parent, locked.parents[1]):
        os.chmod(folder, stat.S_IRUSR)
    for unit in ("DEEP", "LOCKED"):
        os.utime(cache / "triton" / unit, (1, 1))
    content = measure_cache(cache.parents[1], PROJECT)
    deep = next(unit for unit in content.units if unit.path == "triton/DEEP")
    assert not deep.is_complete
    os.utime(cache / "triton" / "DEEP", (1, 1))
    monkeypatch.setattr(library_cache, "MIN_UNUSED_SECONDS", -1.0)  # its folders are new
    assert clean(cache, 0, busy_since=time.time() + 10 * DAY) == ["triton/LOCKED"], "DEEP was not measured as a whole"
    assert clean(cache, 0) == ["triton/DEEP"]
    assert os.listdir(cache / "triton") == []
    assert not (cache / library_cache.REMOVED_FOLDER).exists()


def test_a_file_with_two_names_counts_once_and_a_sparse_one_what_it_has(cache: Path) -> None:
    file = write(cache, "whisper/large.pt", age=DAY, pages=20)
    os.link(file, cache / "whisper" / "same.pt")
    with (cache / "hole.bin").open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert 20 * PAGE <= measure_cache(cache.parents[1], PROJECT).size < 30 * PAGE


def test_a_walk_ends_at_its_bounds(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        write(cache, f"triton/K{number:02}/kernel", age=DAY)
    monkeypatch.setattr(library_cache, "MAX_ENTRIES", 20)
    found = measure_cache(cache.parents[1], PROJECT)
    assert not found.is_complete
    assert len(found.units) < 20
