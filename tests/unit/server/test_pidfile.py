"""One platform per data directory, and no process hit by mistake."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from server.up.checks import StartupError
from server.up.pidfile import Pidfile, PlatformProcess


@pytest.fixture
def record(tmp_path: Path) -> Pidfile:
    record = Pidfile(tmp_path)
    record.open()
    return record


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_the_run_directory_has_mode_700(record: Pidfile) -> None:
    assert record.dir.stat().st_mode & 0o777 == 0o700


def test_a_second_platform_on_the_same_data_is_refused_with_the_pid_of_the_first(
    record: Pidfile, tmp_path: Path
) -> None:
    record.acquire()
    record.write([PlatformProcess.from_pid("fermi", os.getpid())])
    assert Pidfile(tmp_path).supervisor() == PlatformProcess.from_pid("fermi", os.getpid())
    with pytest.raises(StartupError, match=rf"already runs on this data directory \(process {os.getpid()}\)"):
        Pidfile(tmp_path).acquire()


def test_nothing_runs_before_the_first_start(tmp_path: Path) -> None:
    assert Pidfile(tmp_path).supervisor() is None
    assert Pidfile(tmp_path).stop_leftovers() == []


def test_processes_left_by_a_killed_platform_are_ended(record: Pidfile, sleeper: "subprocess.Popen[bytes]") -> None:
    record.write([PlatformProcess.from_pid("worker", sleeper.pid)])
    assert record.stop_leftovers() == ["worker"]
    assert sleeper.wait() != 0


def test_a_process_with_a_reused_pid_is_not_ended(record: Pidfile, sleeper: "subprocess.Popen[bytes]") -> None:
    now = PlatformProcess.from_pid("worker", sleeper.pid)
    assert now.start_time is not None
    record.write([replace(now, start_time=now.start_time - 1), replace(now, boot_id="of another boot")])
    assert record.stop_leftovers() == []
    assert sleeper.poll() is None


def test_a_damaged_record_is_ignored(record: Pidfile) -> None:
    (record.dir / "processes.json").write_text('[{"name": "web", ')
    assert record.processes() == []


def test_a_long_data_path_has_a_short_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / ("x" * 120)
    data.mkdir()
    first = Pidfile(data)
    monkeypatch.setattr(tempfile, "tempdir", str(data))  # as TMPDIR sets it in another terminal
    second = Pidfile(data)
    first.open()
    try:
        assert first.dir == second.dir != data / "run"
        assert len(os.fsencode(first.dir / "broker.sock")) <= 100
    finally:
        first.dir.rmdir()


def test_an_insecure_run_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match="belongs to somebody else"):
        Pidfile(tmp_path).open()
