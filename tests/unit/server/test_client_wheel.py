"""The package that a platform serves for other machines."""

import os
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from io import BytesIO
from pathlib import Path

import pytest
from django.test import Client
from packaging.requirements import Requirement

from server import client_wheel


@pytest.fixture(scope="module")
def wheel() -> client_wheel.ClientWheel:
    return client_wheel.build_wheel()


def test_the_wheel_has_every_file_of_the_package_and_the_dependencies(
    root: Path, wheel: client_wheel.ClientWheel
) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    archive = zipfile.ZipFile(BytesIO(wheel.content))
    tracked = subprocess.run(
        ["git", "ls-files", "fermi", "procguard"], cwd=root / "platform", capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("not a git repository")
    assert set(tracked.stdout.split()) <= set(archive.namelist())
    assert [name for name in archive.namelist() if "__pycache__" in name] == []
    about = message_from_bytes(archive.read("fermi_training-0.1.0.dist-info/METADATA"))
    assert (about["Name"], about["Version"], about["Requires-Python"]) == ("fermi-training", "0.1.0", ">=3.11")
    needed = [Requirement(line) for line in about.get_all("Requires-Dist", [])]
    assert {str(one) for one in needed if not one.marker} == {str(Requirement(one)) for one in project["dependencies"]}
    assert [one.name for one in needed if one.marker and one.marker.evaluate({"extra": "ssh"})] == ["asyncssh"]


def test_equal_sources_give_equal_bytes(wheel: client_wheel.ClientWheel) -> None:
    client_wheel.build_wheel.cache_clear()
    assert client_wheel.build_wheel() == wheel


def test_pip_installs_the_served_wheel(wheel: client_wheel.ClientWheel, tmp_path: Path) -> None:
    found = Client().get("/client.whl", follow=True)
    assert found.redirect_chain == [(f"/client/{wheel.name}", 302)]
    (tmp_path / wheel.name).write_bytes(found.content)
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        tmp_path / "to",
    ]
    done = subprocess.run([*install, tmp_path / wheel.name], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    ask = [sys.executable, tmp_path / "to" / "bin" / "fermi", "version"]
    env = {"PYTHONPATH": str(tmp_path / "to"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    said = subprocess.run(ask, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "0.1.0" in said.stdout, said.stderr
    ask = [sys.executable, "-S", "-m", "procguard.worker_launcher", "--help"]
    packages = os.pathsep.join([str(tmp_path / "to"), *(path for path in sys.path if path.endswith("site-packages"))])
    said = subprocess.run(ask, cwd=tmp_path, env={**env, "PYTHONPATH": packages}, capture_output=True, text=True)
    assert "--worker-id" in said.stdout, said.stderr


def test_another_file_name_is_answered_with_the_install_command(wheel: client_wheel.ClientWheel) -> None:
    found = Client().get("/client/fermi_training-9.9-py3-none-any.whl")
    assert found.status_code == 404
    assert found.content.decode() == f"pip install http://testserver/client/{wheel.name}\n"
