"""What a member's script gets at on the local engine: as another user, in a Landlock domain, in both, in neither."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from fermi.engines import isolation
from fermi.runner import sandbox

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]
NEEDED = "import fermi.engines.local.engine, tests.isolation.data_directory as data; data.plugins.get_framework('ddp')"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a path that other users can pass, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="fermi-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@lru_cache
def python_for(uid: int) -> str:
    """An interpreter that this user can run our code with; "" = there is none."""
    if uid == os.getuid():
        return sys.executable
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            subprocess.run(
                [python, "-c", NEEDED],
                check=True,
                capture_output=True,
                env=environment("/"),
                cwd="/",
                user=uid,
                timeout=60,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return python
    return ""


def environment(home: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform"), sysconfig.get_path("purelib")])
    return {
        "PATH": os.pathsep.join([f"{home}/bin", os.environ["PATH"]]),
        "HOME": f"{home}/user",
        "PYTHONPATH": path,
        "FERMI_SECRET_KEY": "fermi_secret",
    }


def play(folder: Path, mode: str, *, uid: int | None = None, ranks: int | None = None) -> dict[str, Any]:
    """`uid`: of the platform; `ranks`: of the user that ranks are to have."""
    uid = os.getuid() if uid is None else uid
    python = python_for(uid if ranks is None else ranks)
    if not python:
        pytest.skip(f"user {uid if ranks is None else ranks} can run none of this machine's interpreters")
    os.chown(folder, uid, -1)
    more = {"user": uid, "group": uid, "extra_groups": []} if uid != os.getuid() else {}
    done = subprocess.run(
        [python, "-m", "tests.isolation.data_directory", str(folder), mode], capture_output=True, text=True,
        timeout=300, cwd="/", env=environment(str(folder)), **more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def needs_landlock() -> None:
    if not sandbox.read_landlock_abi():
        pytest.skip("this kernel has no Landlock, or it is turned off")


def needs_root() -> None:
    if os.getuid():
        pytest.skip("only root can become another user")


def holds(seen: dict[str, Any]) -> None:
    """It got nothing of the platform's, and everything that ordinary scripts do works."""
    assert seen["got"] == []
    assert seen["broken"] == []
    assert seen["lines"] == ["through /dev/stdout"]
    assert not [name for name, value in seen["env"].items() if "fermi_secret" in value]


def test_without_isolation_a_script_reaches_everything(folder: Path) -> None:
    """What the tests below would miss: each of these is tried there too."""
    seen = play(folder, "off")
    tried = ("read", "write", "replace", "link", "make", "chmod", "trace another", "signal another", "offer", "ask",
             "pidfd_getfd", "process_vm_writev", "move_pages")  # fmt: skip
    assert all(any(got.startswith(kind) for got in seen["got"]) for kind in tried)
    assert {"read environ of another process", "read mem of another process"} <= {*seen["got"]}
    changes = ("limits", "priority", "policy", "priority of its input and output")
    assert {f"change another process: {what}" for what in changes} <= {*seen["got"]}
    assert any(got.endswith("data/token") for got in seen["got"])
    assert seen["broken"] == []


def test_landlock_denies_the_platforms_files_and_processes(folder: Path) -> None:
    needs_landlock()
    seen = play(folder, "landlock")
    assert (seen["code"], seen["uid"]) == ("ISOLATION_LANDLOCK", os.getuid())
    holds(seen)


def test_landlock_isolates_an_unprivileged_platform(folder: Path) -> None:
    needs_landlock()
    needs_root()
    seen = play(folder, "auto", uid=NOBODY)
    assert (seen["code"], seen["uid"]) == ("ISOLATION_LANDLOCK", NOBODY)
    holds(seen)


@pytest.mark.parametrize(("mode", "code"), [("user", "ISOLATION_USER"), ("auto", "ISOLATION_BOTH")])
def test_a_root_platform_runs_scripts_as_another_user(folder: Path, mode: str, code: str) -> None:
    needs_root()
    if mode == "auto":
        needs_landlock()
    seen = play(folder, mode, ranks=isolation.TASK_UID)
    assert (seen["code"], seen["uid"]) == (code, isolation.TASK_UID)
    assert seen["env"]["HOME"] == str(folder / "data" / "homes" / "default")
    holds(seen)


def test_landlock_is_used_where_the_other_user_cannot_write_the_workspace(folder: Path) -> None:
    """What was there before stays as it was."""
    needs_root()
    data = folder / "data"
    (data / "workspace" / "mine").mkdir(parents=True)
    data.chmod(0o700)
    python = python_for(isolation.TASK_UID) or sys.executable
    found = isolation.choose_isolation("auto", isolation.SandboxPaths(data, data / "workspace", python))
    assert found.user is None
    assert found.code == ("ISOLATION_LANDLOCK" if sandbox.read_landlock_abi() else "ISOLATION_NONE")
    assert [code for code, _ in found.reasons][-1].startswith("TASK_USER_CANNOT_")
    info = data.stat()
    assert (info.st_mode & 0o777, info.st_gid) == (0o700, os.getgid())


def test_without_any_isolation_the_reason_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 0)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = isolation.choose_isolation(
        "auto", isolation.SandboxPaths(folder / "data", folder / "workspace", sys.executable)
    )
    assert (found.code, found.landlock, found.user) == ("ISOLATION_NONE", False, None)
    assert [code for code, _ in found.reasons] == ["LANDLOCK_MISSING", "TASK_USER_TAKES_ROOT"]
    assert found.sentences("en").startswith("Training on this machine is not isolated")


def test_a_folder_with_a_forbidden_subfolder_is_allowed_by_entry(tmp_path: Path) -> None:
    for name in ("data/workspace", "data/datasets", "data/run", "beside/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / "token").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    paths = {"/": "rwm", f"{tmp_path}/data": "", f"{tmp_path}/data/workspace": "rwm", f"{tmp_path}/data/datasets": "r"}
    allowed, opened = sandbox.expand_paths(paths)
    inside = {path: mode for path, mode in allowed.items() if path.startswith(str(tmp_path))}
    assert inside == {
        f"{tmp_path}/beside": "rwm",
        f"{tmp_path}/data/workspace": "rwm",
        f"{tmp_path}/data/datasets": "r",
    }
    assert {"/", str(tmp_path)} <= opened
    assert f"{tmp_path}/beside" not in opened


def test_links_of_a_forbidden_folder_are_resolved_and_forbidden(tmp_path: Path) -> None:
    """Checkpoints on another disk are still those of all tasks."""
    for name in ("data", "disk/checkpoints/task-1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / "checkpoints").symlink_to(tmp_path / "disk" / "checkpoints")
    paths = {"/": "rwm", f"{tmp_path}/data": "", f"{tmp_path}/data/checkpoints/task-1": "rwm", "/nowhere": "r"}
    assert sandbox.resolve_paths(paths) == {
        "/": "rwm",
        f"{tmp_path}/data": "",
        f"{tmp_path}/disk/checkpoints": "",
        f"{tmp_path}/disk/checkpoints/task-1": "rwm",
    }
