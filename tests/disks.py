"""A disk that is full soon."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, mebibytes: int = 64) -> Iterator[Path]:
    """In memory; its test is skipped where none can be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "fermi-test", str(disk)]
    mounted = subprocess.run(command, capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
