"""The file system view of a task's own."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fermi.runner import mounts
from tests.platform_process import ROOT

LOOK = """
import json, os, sys, tempfile
from fermi.runner import mounts, sandbox
given, named = json.loads(sys.argv[1])
own = tempfile.mkdtemp(dir=sys.argv[2])
paths = {**sandbox.resolve_paths(sandbox.build_system_paths()), **given}
view = mounts.make_view(paths, named, own)
before = os.stat("/dev/shm").st_dev
view.enter()
print(json.dumps({"uid": os.getuid(), "shm": os.stat("/dev/shm").st_dev != before, "tmp": os.listdir("/tmp"),
                  "there": {path: os.path.exists(path) for path in sys.argv[3:]},
                  "ro": {path: bool(os.statvfs(path).f_flag & os.ST_RDONLY) for path in given if given[path]}}))
"""


def seen(folder: Path, given: dict[str, str], named: list[str], *paths: str) -> dict:
    """What a process sees in a view of these paths."""
    own = folder / "own"
    own.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, json.dumps([given, named]), str(own), *paths], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform")}, check=False,
    )  # fmt: skip
    if "ViewError" in done.stderr:
        pytest.skip(f"no mount namespace can be made here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


DISKS = """
import json, os, sys, tempfile
from fermi.runner import mounts, sandbox
from fermi.train import preflight_node
own = tempfile.mkdtemp(dir=sys.argv[1])
view = mounts.make_view({**sandbox.resolve_paths(sandbox.build_system_paths()), sys.argv[2]: "rwm"}, [], own)
view.enter()
os.chdir(sys.argv[2])
print(json.dumps(preflight_node._list_disks()))
"""


@pytest.fixture
def folder():
    """Outside of /tmp, which a view has of its own."""
    person = pwd.getpwuid(os.getuid()).pw_dir  # tests have a HOME of their own, below /tmp
    where = next((path for path in ("/var", person, "/var/tmp") if os.access(path, os.W_OK)), None)
    if where is None:
        pytest.skip("there is no folder to write to outside of /tmp")
    path = Path(tempfile.mkdtemp(prefix="fermi-test-", dir=where))
    yield path
    shutil.rmtree(path)


def test_the_preflight_test_measures_no_file_system_of_the_view(folder: Path) -> None:
    """The parents of what a task was given lie on one of 4 MB."""
    for name in ("own", "data/workspace"):
        (folder / name).mkdir(parents=True)
    missing = str(folder / "data" / "checkpoints" / "task-x")
    done = subprocess.run(
        [sys.executable, "-c", DISKS, str(folder / "own"), str(folder / "data" / "workspace")], text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform"), "FERMI_CHECKPOINT_DIR": missing},
        capture_output=True, check=False,
    )  # fmt: skip
    if "ViewError" in done.stderr:
        pytest.skip(f"no mount namespace can be made here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    total = shutil.disk_usage(folder).total >> 20
    assert {disk["totalMb"] for disk in json.loads(done.stdout)} == {total}


def test_a_view_has_only_allowed_paths(folder: Path) -> None:
    for name in ("data/read", "data/secret", "data/write", "beside"):
        (folder / name).mkdir(parents=True)
    given = {f"{folder}/data": "r", f"{folder}/data/secret": "", f"{folder}/data/write": "rwm"}
    (folder / "data" / "secret" / "token").write_text("x")
    names = [
        f"{folder}/data/read",
        f"{folder}/data/secret/token",
        f"{folder}/beside",
        str(Path.home() / ".ssh"),
        "/run",
    ]
    found = seen(folder, given, [], *names)
    assert [found["there"][name] for name in names] == [True, False, False, False, False]
    assert found["ro"] == {f"{folder}/data": True, f"{folder}/data/write": False}
    assert (found["shm"], found["uid"]) == (True, os.getuid())
    inside = [Path(sys.prefix).parts] if Path(sys.prefix).is_relative_to("/tmp") else []  # a clone below /tmp
    assert found["tmp"] in ([], [parts[2] for parts in inside])


def test_a_path_over_links_works_as_written(folder: Path) -> None:
    (folder / "disk" / "set").mkdir(parents=True)
    (folder / "disk" / "set" / "x").write_text("1")
    (folder / "near").symlink_to("disk")
    (folder / "far").symlink_to(folder / "near")
    path = f"{folder}/far/set"
    found = seen(folder, {f"{folder}/disk/set": "r"}, [path], f"{path}/x", f"{folder}/near/set/x")
    assert all(found["there"].values()), found
    assert mounts.find_links(path) == {f"{folder}/far": f"{folder}/near", f"{folder}/near": "disk"}


def test_circular_links_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert set(mounts.find_links(f"{tmp_path}/a/x")) == {f"{tmp_path}/a", f"{tmp_path}/b"}


def test_a_failed_mount_names_its_step(tmp_path: Path) -> None:
    with pytest.raises(mounts.ViewError):
        mounts.make_view({"/usr": "r"}, (), str(tmp_path / "absent"))
