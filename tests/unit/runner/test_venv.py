"""Ranks that are forked and go on as the interpreter of a virtual environment: where they may, and where not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fermi.envd import interpreter
from fermi.runner import files, node

TELLS = """
import json, sys
import tiny
said = {"tiny": tiny.__file__, "python": sys.executable, "prefix": sys.prefix}
print(json.dumps({**said, "executed": "fermi.runner.node" not in sys.orig_argv}))
"""
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """An environment with a package that its base has not got."""
    interpreter.make_interpreter(sys.executable, tmp_path / "own")
    (packages(tmp_path / "own") / "tiny.py").touch()
    return tmp_path / "own"


def packages(own: Path) -> Path:
    return own / "lib" / f"python{VERSION}" / "site-packages"


def run(folder: Path, own: Path, runner: str = sys.executable) -> dict[str, Any]:
    """What one rank says, forked if that may be."""
    script, log = folder / "tells.py", folder / "0.log"
    script.write_text(TELLS)
    log.unlink(missing_ok=True)
    spec = {
        "name": "task-x-1", "node_rank": 0, "command": [str(own / "bin" / "python"), "-u", str(script)],
        "cwd": str(folder), "env": {}, "ranks": [{"rank": 0, "local_rank": 0, "env": {}, "log": str(log)}],
        "stop_signal": "SIGTERM", "grace_seconds": 5, "fork": True, "venv": str(own),
    }  # fmt: skip
    for left in folder.glob("node-0.*"):
        left.unlink()
    files.write_json_atomically(str(folder / "node-0.json"), spec)
    env = {**os.environ, "PYTHONPATH": str(Path(node.__file__).parents[2])}
    subprocess.run([runner, "-m", "fermi.runner.node", str(folder / "node-0.json")], env=env, check=True)
    said: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    return said


def test_a_forked_rank_has_its_environments_packages(tmp_path: Path, own: Path) -> None:
    said = run(tmp_path, own)
    there = str(packages(own) / "tiny.py")
    assert said == {"tiny": there, "python": str(own / "bin/python"), "prefix": str(own), "executed": False}


@pytest.mark.parametrize("name", ["contextlib.py", "json", "more.pth", "nvidia"])
def test_a_rank_is_executed_where_its_environment_has_another_imported_package(
    tmp_path: Path, own: Path, name: str
) -> None:
    """The standard library wins over packages of its names, in a forked rank and in an executed one."""
    path = packages(own) / name
    path.touch() if "." in name else path.mkdir()
    said = run(tmp_path, own)
    assert (said["executed"], said["prefix"]) == (True, str(own))


def test_a_rank_is_executed_where_its_environment_has_another_interpreter(tmp_path: Path, own: Path) -> None:
    about = json.loads((own / "made.json").read_text())
    (own / "made.json").write_text(json.dumps({**about, "base": "/usr/bin/another"}))
    assert run(tmp_path, own)["executed"]
    (own / "made.json").unlink()
    assert run(tmp_path, own)["executed"]


def test_a_venv_with_a_module_that_was_missing_before_is_not_adopted(own: Path) -> None:
    program = (
        "from fermi.runner import venv; venv.record_missing_modules(); venv.record_missing_modules()\n"
        "try: import optional_thing.part\nexcept ImportError: pass\n"
        "import sys; print(venv.adopt_venv(sys.argv[1]))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(node.__file__).parents[2])}

    def goes_on() -> str:
        command = [sys.executable, "-c", program, str(own)]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()

    assert goes_on() == "True"
    (packages(own) / "optional_thing").mkdir()
    assert goes_on() == "False"
