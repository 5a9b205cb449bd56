"""A folder of a laptop trains on three nodes: the right state of it each time, verified, with its packages; and what
was damaged on its way is refused with its cause."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.e2e

NODES = ["env-001", "env-002", "env-003"]
FEW = ("--world-size", "3")
SCRIPT = """import os, sys
from lib.word import WORD
print(WORD, "on", os.environ["NODE_RANK"], "in", os.getcwd(), "by", sys.prefix, flush=True)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("platform") / "data").start()
    yield running
    running.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "mine"
    (top / "lib").mkdir(parents=True)
    (top / "train.py").write_text(SCRIPT)
    (top / "lib" / "word.py").write_text('WORD = "first"\n')
    (top / "secret.env").write_text("KEY=1\n")
    (top / ".gitignore").write_text("*.env\n")
    return top


def fermi(platform: Running, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**platform.env, "XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "LANG": "en_US.UTF-8"}
    command = [sys.executable, "-m", "fermi.cli", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)


def submit(platform: Running, tmp_path: Path, *more: str) -> dict[str, Any]:
    nodes = [word for node in NODES for word in ("--env", node)]
    data = ["--dataset", "none", "--model", "none", "--pulse", "off", "--max-restarts", "0"]
    words = ["submit", "--name", "mine", *nodes, *data, "--script", "train.py", *more]
    done = fermi(platform, tmp_path, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "said": done.stderr}


def words_of(platform: Running, task_id: str) -> list[str]:
    """Of all ranks, the line that the script prints."""
    world = platform.task(task_id)["worldSize"]
    lines = [line for rank in range(world) for line in platform.log(task_id, rank).splitlines() if " on " in line]
    assert len(lines) == world
    return lines


def test_changes_between_two_submissions_train_on_every_node(platform, folder, tmp_path):
    first = submit(platform, tmp_path, "--code", str(folder))
    (folder / "lib" / "word.py").write_text('WORD = "second"\n')
    second = submit(platform, tmp_path, "--code", str(folder))
    assert "Uploading 1 new file," in second["said"], "what has not changed is not sent again"
    for task, word in ((first, "first"), (second, "second")):
        platform.until_state(task["taskId"], "succeeded", seconds=120)
        lines = words_of(platform, task["taskId"])
        assert {line.split()[0] for line in lines} == {word}
        assert {line.split()[2] for line in lines} == {"0", "1", "2"}
        assert len({line.split(" in ")[1].split(" by ")[0] for line in lines}) == 1, "all nodes share one working tree"

    known = platform.get(f"/training-tasks/{second['taskId']}/code")
    assert known["previous"]["taskId"] == first["taskId"]
    shown = fermi(platform, tmp_path, "code", "diff", second["taskId"])
    assert '-WORD = "first"\n+WORD = "second"\n' in shown.stdout, shown.stderr
    back = fermi(platform, tmp_path, "clone", first["taskId"], str(tmp_path / "back"))
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "back" / "lib" / "word.py").read_text() == 'WORD = "first"\n'
    assert not (tmp_path / "back" / "secret.env").exists(), ".gitignore is honoured"
    again = fermi(platform, tmp_path, "clone", first["taskId"], str(tmp_path / "back"))
    assert again.returncode != 0
    request = fermi(platform, tmp_path, "clone", first["taskId"]).stdout
    assert known["previous"]["snapshotId"] in request, "its request names the very snapshot"


def test_a_damaged_archive_is_refused_with_its_cause(platform, folder, tmp_path):
    (folder / "lib" / "word.py").write_text('WORD = "third"\n')
    sent = fermi(platform, tmp_path, "code", "send", str(folder), "-o", "json")
    key = json.loads(sent.stdout)["id"]
    archive = platform.data / "code" / "archives" / key / "code.tar"
    whole = platform.api.get(f"/code/snapshots/{key}/archive").content
    assert archive.read_bytes() == whole
    archive.write_bytes(whole.replace(b'"third"', b'"wrong"'))
    task = submit(platform, tmp_path, "--code", str(folder), *FEW)
    ended = platform.until_final(task["taskId"], seconds=120)
    assert ended["reason"]["code"] == "CODE_ARCHIVE_BROKEN", ended["reason"]
    assert "lib/word.py" in ended["reason"]["message"]
    assert platform.strays() == []


def test_packages_are_prepared_once_and_an_invalid_one_is_reported(platform, folder, tmp_path):
    wheels = platform.data / "workspace" / "wheels"  # where a task may read
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / "fermitoy-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("fermitoy.py", 'WORD = "toy"\n')
        wheel.writestr("fermitoy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fermitoy\nVersion: 1.0\n")
        wheel.writestr("fermitoy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("fermitoy-1.0.dist-info/RECORD", "")
    (folder / "lib" / "word.py").write_text("from fermitoy import WORD\n")
    (folder / "requirements.txt").write_text(f"--no-index\n--find-links {wheels}\nfermitoy\n")
    task = submit(platform, tmp_path, "--code", str(folder), *FEW)
    platform.until_state(task["taskId"], "succeeded", seconds=180)
    lines = words_of(platform, task["taskId"])
    assert {line.split()[0] for line in lines} == {"toy"}
    [prefix] = {line.split(" by ")[1] for line in lines}
    assert str(platform.data / "packages") in prefix
    (folder / "requirements.txt").write_text("--no-index\nno-such-package-of-anybody\n")
    wrong = platform.until_final(submit(platform, tmp_path, "--code", str(folder), *FEW)["taskId"], seconds=120)
    assert wrong["reason"]["code"] == "CODE_PACKAGES_FAILED"
    assert "no-such-package-of-anybody" in wrong["reason"]["message"]


def test_a_snapshot_of_the_master_environments_folder_is_trained(platform, tmp_path):
    workspace = platform.data / "environments" / "env-001" / "workspace" / "mine"
    (workspace / "lib").mkdir(parents=True)
    (workspace / "train.py").write_text(SCRIPT)
    (workspace / ".gitignore").write_text("big.bin\n")
    (workspace / "big.bin").write_bytes(b"\0" * 1024)
    made = []
    for word in ("early", "late"):
        (workspace / "lib" / "word.py").write_text(f'WORD = "{word}"\n')
        task = submit(platform, tmp_path, "--code-env", "master:mine")
        taken = until(lambda key=task["taskId"]: platform.get(f"/training-tasks/{key}/code")["snapshot"])
        assert (taken["files"], taken["origin"]["kind"], taken["origin"]["path"]) == (3, "environment", "mine")
        made.append((task["taskId"], word))
    for task_id, word in made:
        platform.until_state(task_id, "succeeded", seconds=120)
        assert {(line.split()[0], line.split()[2]) for line in words_of(platform, task_id)} == {
            (word, rank) for rank in "012"
        }
    wrong = submit(platform, tmp_path, "--code-env", "master:absent")
    ended = platform.until_final(wrong["taskId"], seconds=60)
    assert "no folder absent" in ended["reason"]["message"], ended["reason"]


def test_a_retry_after_an_edit_in_the_environment_runs_the_edited_code(platform, tmp_path):
    workspace = platform.data / "environments" / "env-001" / "workspace" / "edited"
    (workspace / "lib").mkdir(parents=True)
    (workspace / "train.py").write_text(SCRIPT)
    (workspace / "lib" / "word.py").write_text("raise SystemExit('not yet')\n")
    failed = submit(platform, tmp_path, "--code-env", "master:edited", *FEW)["taskId"]
    assert platform.until_final(failed, seconds=120)["status"] == "failed"
    source = platform.get(f"/training-tasks/{failed}/code/source")
    assert (source["kind"], source["path"], source["changed"]) == ("environment", "edited", False)

    (workspace / "lib" / "word.py").write_text('WORD = "edited"\n')
    assert platform.get(f"/training-tasks/{failed}/code/source")["changed"] is True
    done = fermi(platform, tmp_path, "retry", failed, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "has changed since snapshot" in done.stderr
    retried = json.loads(done.stdout)["taskId"]
    platform.until_state(retried, "succeeded", seconds=120)
    assert {line.split()[0] for line in words_of(platform, retried)} == {"edited"}
    taken = platform.get(f"/training-tasks/{retried}/code")["snapshot"]
    assert taken["id"] != source["snapshotId"]
    assert platform.strays() == []
