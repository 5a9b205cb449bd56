"""The platform tries by itself, from inside, whether tasks are kept from it."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.engines import isolation_check
from fermi.engines.isolation import SandboxPaths
from fermi.engines.local import check
from fermi.runner import sandbox

needs_landlock = pytest.mark.skipif(not sandbox.read_landlock_abi(), reason="this kernel has no Landlock")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Outside of /tmp, which a task has of its own."""
    where = next((path for path in ("/var", Path.home()) if os.access(path, os.W_OK)), None)
    if where is None:
        pytest.skip("there is no folder to write to outside of /tmp")
    with tempfile.TemporaryDirectory(prefix="fermi-test-", dir=where) as path:
        yield Path(path)


@pytest.fixture(autouse=True)
def own_folder_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


@needs_landlock
def test_without_additional_paths_nothing_is_open(folder: Path) -> None:
    assert (
        isolation_check.find_open_paths("landlock", SandboxPaths(folder / "data", folder / "work", sys.executable))
        == ()
    )


@needs_landlock
def test_a_program_folder_writable_by_tasks_is_found(folder: Path) -> None:
    place = SandboxPaths(folder / "data", folder / "work", sys.executable, writes=(folder / "bin",))
    assert isolation_check.find_open_paths("landlock", place) == (f"write {folder / 'bin'}",)
    assert not list((folder / "bin").iterdir()), "what the try made is removed"


def test_without_isolation_everything_is_found_open(folder: Path) -> None:
    found = isolation_check.find_open_paths("off", SandboxPaths(folder / "data", folder / "work", sys.executable))
    assert {f"write {folder / 'bin'}", f"write {folder / 'data'}", f"signal {os.getpid()}"} <= {*found}
    assert not list((folder / "data" / "runs").iterdir())


@needs_landlock
def test_the_check_of_this_machine_reports_what_was_tried(folder: Path) -> None:
    connection = {"data_dir": str(folder / "data"), "isolation": "landlock"}
    [held] = check.check_isolation(connection)
    assert (held.level.value, held.code) == ("pass", "ISOLATION_HOLDS")
    [open_one] = check.check_isolation({**connection, "task_writes": [str(folder / "bin")]})
    assert (open_one.level.value, open_one.code) == ("fail", "ISOLATION_OPEN")
    assert str(folder / "bin") in open_one.params["paths"]
