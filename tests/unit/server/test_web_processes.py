"""How many web processes there are, and the socket that they share."""

import os
import socket

import pytest

from server import env
from server.up import web_processes
from server.up.listen_address import ListenAddress
from tests.platform_process import free_port


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_processes, "count_cores", lambda: 4)


def test_a_fixed_number_starts_at_once_and_stays() -> None:
    count = web_processes.ProcessCount(3)
    assert (count.at_once, count.most) == (3, 3)
    count.compute_target(0, {1: 0, 2: 0, 3: 0})
    assert count.compute_target(5, {1: 5, 2: 5, 3: 5}) == 3


def test_auto_starts_with_one_and_adds_processes_when_all_are_busy() -> None:
    count = web_processes.ProcessCount(None)
    assert count.at_once == 1
    assert count.compute_target(0, {1: 100}) == 1  # since when, nobody knows yet
    assert count.compute_target(5, {1: 102}) == 1
    assert count.compute_target(10, {1: 106}) == 2
    assert count.compute_target(15, {1: 111, 2: 4}) == 2  # the second was not there before
    assert count.compute_target(20, {1: 116, 2: 5}) == 2
    assert count.compute_target(25, {1: 121, 2: 10}) == 3


def test_a_restarted_process_counts_from_its_restart() -> None:
    count = web_processes.ProcessCount(None)
    count.compute_target(0, {1: 100})
    assert count.compute_target(5, {2: 4}) == 1
    assert count.compute_target(10, {2: 8}) == 2


@pytest.mark.parametrize(("cores", "most"), [(1, 1), (2, 2), (4, 4), (64, web_processes.MAX_PROCESSES)])
def test_processes_are_limited_by_cores(monkeypatch: pytest.MonkeyPatch, cores: int, most: int) -> None:
    monkeypatch.setattr(web_processes, "count_cores", lambda: cores)
    assert web_processes.ProcessCount(None).most == most


def test_cpu_time_only_grows() -> None:
    before = web_processes.read_cpu_seconds(os.getpid())
    sum(range(1_000_000))
    assert web_processes.read_cpu_seconds(os.getpid()) >= before > 0
    assert web_processes.read_cpu_seconds(2**22 + 1) == 0


@pytest.mark.parametrize(("text", "wish"), [("", None), ("auto", None), ("1", 1), ("3", 3)])
def test_the_setting_is_parsed(monkeypatch: pytest.MonkeyPatch, text: str, wish: int | None) -> None:
    monkeypatch.setenv("FERMI_WEB", text)
    assert env.read_setting("FERMI_WEB") == wish


@pytest.mark.parametrize("text", ["0", "many", "-1", "65", "2.5"])
def test_an_invalid_setting_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FERMI_WEB", text)
    with pytest.raises(env.InvalidSettingError, match="FERMI_WEB must be auto or a whole number"):
        env.read_setting("FERMI_WEB")


def test_connections_queue_at_the_socket_while_no_process_serves() -> None:
    port = free_port()
    with (
        web_processes.open_socket(ListenAddress("127.0.0.1", port)),
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\n")


def test_each_process_has_its_metrics_port(monkeypatch: pytest.MonkeyPatch) -> None:
    assert web_processes.build_metrics_variables(2) == {}
    monkeypatch.setenv("FERMI_METRICS_PORT", "9464")
    assert [web_processes.build_metrics_variables(number)["FERMI_METRICS_PORT"] for number in (1, 2, 3)] == [
        "9464",
        "9465",
        "9466",
    ]
