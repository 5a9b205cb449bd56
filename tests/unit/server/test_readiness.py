"""What /readyz says of the database, the broker and the data directory's disk: each is written to."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import connection
from django.test import Client

from apps.common import disks
from apps.common.models import Written
from server import readiness

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_is_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)


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


def test_readiness_writes_and_detects_a_disk_that_fills(client: Client, disk: Path) -> None:
    assert ready(client) == (True, [])
    fill(disk / "most", (4 << 20) * 95 // 100)
    well, [warning] = ready(client)
    assert well
    assert (warning["code"], warning["percent"]) == ("DISK_NEARLY_FULL", 95)
    assert disks.find_nearly_full(disk)["path"] == str(disk)
    with (disk / "rest").open("wb") as rest:
        os.posix_fallocate(rest.fileno(), 0, disks.read_free_space(str(disk))["free"])
    assert not ready(client)[0]
    assert client.get("/readyz").status_code == 503
    (disk / "rest").unlink()
    assert ready(client)[0]


def test_readiness_detects_an_unwritable_disk(client: Client, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert not ready(client)[0]
    assert list(disk.iterdir()) == []


def faults(client: Client) -> dict[str, str]:
    return {fault["part"]: fault["code"] for fault in client.get("/readyz").json()["faults"]}


def test_a_full_disk_is_named(client: Client, disk: Path) -> None:
    with (disk / "all").open("wb") as all_of_it:
        os.posix_fallocate(all_of_it.fileno(), 0, disks.read_free_space(str(disk))["free"])
    assert faults(client)["disk"] == "DATA_DISK_FULL"
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert faults(client)["disk"] == "DATA_DISK_UNWRITABLE"


def test_readiness_writes_one_row_to_the_database_and_at_most_once_a_second(
    client: Client, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    client.get("/readyz")
    first = Written.objects.get().at
    client.get("/readyz")
    second = Written.objects.get().at
    assert second > first
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 60.0)
    with django_assert_num_queries(1):
        assert "database" not in faults(client)
    assert Written.objects.get().at == second


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_read_only_database_is_named(client: Client) -> None:
    on, off = ("PRAGMA query_only = 1", "PRAGMA query_only = 0")
    if connection.vendor == "postgresql":
        on, off = ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off")
    with connection.cursor() as cursor:
        cursor.execute(on)
        try:
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["parts"]["database"]) == (503, False)
            assert faults(client)["database"] == "DATABASE_READ_ONLY"
        finally:
            cursor.execute(off)
    assert "database" not in faults(client)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), "BROKER_READ_ONLY"),
        (redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "BROKER_FULL"),
        (redis.exceptions.ConnectionError("refused"), "BROKER_UNAVAILABLE"),
    ],
)
def test_the_reason_of_a_failing_broker_is_named(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(redis.Redis, "set", refuse)
    found = client.get("/readyz", headers={"Accept-Language": "en"}).json()
    assert not found["parts"]["broker"]
    said = {fault["part"]: fault for fault in found["faults"]}["broker"]
    assert said["code"] == code
    assert said["message"].startswith("The broker")
