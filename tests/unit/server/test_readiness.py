"""What /readyz says of the data directory's disk."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.common import disks

pytestmark = pytest.mark.django_db


@pytest.fixture
def disk(tmp_path: Path, settings: Any) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "fermi-test", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    settings.DATA_DIR = folder
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def ready(client: Client) -> tuple[bool, list[dict[str, Any]]]:
    body = client.get("/readyz").json()
    return body["parts"]["disk"], body["warnings"]


def fill(path: Path, size: int) -> None:
    path.write_bytes(b"x" * size)


def test_readiness_writes_and_sees_a_disk_that_fills(client: Client, disk: Path) -> None:
    assert ready(client) == (True, [])
    fill(disk / "most", (4 << 20) * 95 // 100)
    well, [warning] = ready(client)
    assert well
    assert (warning["code"], warning["percent"]) == ("DISK_NEARLY_FULL", 95)
    assert disks.nearly_full(disk)["path"] == str(disk)
    with (disk / "rest").open("wb") as rest:
        os.posix_fallocate(rest.fileno(), 0, disks.room(str(disk))["free"])
    assert not ready(client)[0]
    assert client.get("/readyz").status_code == 503
    (disk / "rest").unlink()
    assert ready(client)[0]


def test_readiness_sees_a_disk_that_takes_nothing(client: Client, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert not ready(client)[0]
    assert list(disk.iterdir()) == []
