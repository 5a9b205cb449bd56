"""Before anything is started: one clear sentence, and nothing left behind."""

import shutil
import socket
from pathlib import Path

import pytest

from server.up import checks
from server.up.checks import StartupError
from tests.platform_process import free_port


def test_a_data_directory_is_created_with_mode_700(tmp_path: Path) -> None:
    data = checks.prepare_data_dir(tmp_path / "deep" / "data")
    assert data.stat().st_mode & 0o777 == 0o700
    assert list(data.iterdir()) == []


def test_a_data_directory_below_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"directory .*file/data cannot be written to \(not a directory\).*DATA="):
        checks.prepare_data_dir(tmp_path / "file" / "data")


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match="cannot be written to"):
        checks.prepare_data_dir(tmp_path / "file")


def test_an_unwritable_directory_is_refused_by_name() -> None:
    with pytest.raises(StartupError, match="/proc/self cannot be written to"):  # so it is for root, too
        checks.prepare_data_dir(Path("/proc/self"))


def test_a_full_disk_is_reported_with_the_needed_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=5 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StartupError, match=r"full \(5 MB free, 200 MB needed\)"):
        checks.prepare_data_dir(tmp_path)


def test_a_free_port_is_accepted_and_left_free() -> None:
    port = free_port()
    checks.check_address("127.0.0.1", port)
    checks.check_address("127.0.0.1", port)


def test_a_busy_port_is_refused_with_advice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(StartupError, match=rf"Port {port} on 127.0.0.1 is in use: .*PORT="):
            checks.check_address("127.0.0.1", port)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_an_invalid_port_is_refused(port: int) -> None:
    with pytest.raises(StartupError, match="is not a port"):
        checks.check_address("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(StartupError, match=f"{host} is not an address of this machine"):
        checks.check_address(host, free_port())
