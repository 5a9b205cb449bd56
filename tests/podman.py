"""The machine's own Podman, for tests that run real containers."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.launch.backends.local import engines


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
            if (found := engines.find(folder / str(number))) and found.name == "podman":
                return given
    pytest.skip("podman cannot run a container here, neither with its own runtime nor with runc")


def imported(name: str, archive: Path) -> Iterator[str]:
    """An image, for as long as it is needed."""
    image = f"localhost/fermi-test-{name}:{os.getpid()}"
    podman("import", str(archive), image)
    archive.unlink()
    yield image
    podman("rmi", "--force", image)
