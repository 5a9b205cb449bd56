"""Podman for tests: the machine's own, and one that only keeps books (`tests.fakes.podman`)."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.local import container_engines


def podman(*words: str) -> str:
    done = subprocess.run(["podman", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def settings(folder: Path) -> dict[str, str]:
    """Variables with which it runs containers here: as the machine has it; else with another runtime, where control
    groups need one. Skips where it runs none."""
    if not shutil.which("podman"):
        pytest.skip("there is no podman: apt-get install --no-install-recommends podman runc")
    (folder / "containers.conf").write_text('[engine]\nruntime = "runc"\n')
    for number, given in enumerate(({}, {"CONTAINERS_CONF": str(folder / "containers.conf")})):
        with pytest.MonkeyPatch.context() as patched:
            for name, value in given.items():
                patched.setenv(name, value)
            if (found := container_engines.find_container_engine(folder / str(number))) and found.name == "podman":
                return given
    pytest.skip("podman cannot run a container here, neither with its own runtime nor with runc")


def imported(name: str, archive: Path) -> Iterator[str]:
    """An image, for as long as it is needed."""
    image = f"localhost/fermi-test-{name}:{os.getpid()}"
    podman("import", str(archive), image)
    archive.unlink()
    yield image
    podman("rmi", "--force", image)


class Podman:
    """That keeps books, as tests set it up and ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "podman"
        program.parent.mkdir(parents=True)
        fake = Path(__file__).parent / "fakes" / "podman.py"
        program.write_text(f'#!/bin/sh\nPODMAN_STATE={folder} exec {sys.executable} -S {fake} "$@"\n')
        program.chmod(0o755)

    def says(self, **about: Any) -> None:
        (self.folder / "says.json").write_text(json.dumps(about))

    def has(self, image: str) -> None:
        (self.folder / "images").write_text(f"{image}\n")

    def slow(self) -> None:
        (self.folder / "slow").touch()

    def goes_on(self) -> None:
        (self.folder / "slow").unlink(missing_ok=True)

    def list_calls(self, verb: str) -> list[list[str]]:
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words for words in map(json.loads, lines) if words[0] == verb]

    def runs(self) -> list[list[str]]:
        return [words for words in self.list_calls("run") if "--rootfs" not in words]

    def containers(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.container"))

    def add(self, name: str, **labels: str) -> None:
        (self.folder / f"{name}.container").write_text(json.dumps({"pid": 0, "labels": labels}))

    def pid(self, name: str) -> int:
        return int(json.loads((self.folder / f"{name}.container").read_text())["pid"])
