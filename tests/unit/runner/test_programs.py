"""Which folders of PATH the platform looks for its own programs in."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fermi.runner import programs
from tests.platform_process import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def made(path: Path, mode: int = 0o755) -> str:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return str(path)


def test_a_folder_writable_by_others_or_tasks_is_left_out(folder: Path) -> None:
    own, strange = made(folder / "own"), made(folder / "strange", 0o777)
    below, given = made(folder / "strange" / "bin"), made(folder / "data" / "tools")
    link = folder / "link"
    link.symlink_to(strange)
    path = os.pathsep.join([own, strange, below, given, str(link), "relative", "", str(folder / "absent"), "/usr/bin"])
    assert programs.filter_trusted_path(path, [str(folder / "data")]).split(os.pathsep) == [own, "/usr/bin"]


def test_a_folder_of_another_user_is_left_out(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    theirs = made(folder / "theirs")
    os.chown(theirs, 61000, -1)
    assert programs.filter_trusted_path(f"{theirs}:/usr/bin") == "/usr/bin"


def test_without_a_trusted_folder_system_folders_are_searched() -> None:
    assert programs.filter_trusted_path("bin::.") == programs.DEFAULT_PATH
    assert shutil.which("sh", path=programs.DEFAULT_PATH)


def test_every_process_of_the_platform_uses_trusted_folders_only(folder: Path) -> None:
    """As settings are imported: by web, worker, beat, watcher and commands of manage.py."""
    strange = made(folder / "strange", 0o777)
    (folder / "strange" / "git").write_text("#!/bin/sh\necho taken\n")
    (folder / "strange" / "git").chmod(0o755)
    told = "import shutil, server.settings; print(shutil.which('git') or '')"
    env = {
        "PATH": f"{strange}:/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "HOME": str(folder),
        "FERMI_DATA": str(folder / "data"), "FERMI_SECRET_KEY": "x",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", told], env=env, capture_output=True, text=True, check=True)
    assert not done.stdout.startswith(strange)
