"""A disk that is full soon."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """64 MiB, in memory; its test is skipped where none can be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "fermi-test", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
