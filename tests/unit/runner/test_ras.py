"""NCCL's own word on a job, from a server that answers and refuses as NCCL's does."""

import socket
import threading
from collections.abc import Iterator

import pytest

from fermi.runner import ras

REPORT = (
    "NCCL version 2.27.3\n\nJob summary\n===========\n\nErrors\n======\n\nINCOMPLETE: Missing data from 1 process\n"
)


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, heard))
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", heard
        thread.join()


def _serve(listening: socket.socket, heard: list[str]) -> None:
    connection, _ = listening.accept()
    with connection, connection.makefile("r", newline="\n") as lines:
        for line in lines:
            heard.append(line.rstrip("\n"))
            if line.startswith("timeout "):
                connection.sendall(b"OK\n")
            elif line in ("status\n", "verbose status\n"):
                connection.sendall(REPORT.encode())
                return
            else:
                connection.sendall(f"ERROR: Unknown command {line}".encode())


def test_the_report_is_read_without_lines_and_greetings(server: tuple[str, list[str]]) -> None:
    address, heard = server
    assert ras.query_status({"NCCL_RAS_ADDR": address}) == [
        "NCCL version 2.27.3", "Job summary", "Errors", "INCOMPLETE: Missing data from 1 process"
    ]  # fmt: skip
    assert heard == ["timeout 1", "status"]


def test_each_nodes_ranks_get_their_own_free_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ras.ADDRESS_VARIABLE, raising=False)
    host, _, port = ras.choose_address().rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) in ras.PORTS
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr(ras, "PORTS", range(number, number + 1))
        assert ras.choose_address() == ras.DEFAULT_ADDRESS
    monkeypatch.setenv(ras.ADDRESS_VARIABLE, "10.0.0.1:5000")
    assert ras.choose_address() == "10.0.0.1:5000"


@pytest.mark.parametrize(
    "env", [{"NCCL_RAS_ENABLE": "0"}, {"NCCL_RAS_ADDR": "127.0.0.1:1"}, {"NCCL_RAS_ADDR": "nonsense"}]
)
def test_without_a_server_there_is_no_report(env: dict[str, str]) -> None:
    assert ras.query_status(env) == []
