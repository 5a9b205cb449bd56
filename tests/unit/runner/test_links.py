"""Connections that get no answer, as the kernel's tables show them."""

import pytest

from fermi.runner import links
from fermi.runner.links import TcpConnection

LINE = "   5: 0100007F:1F90 {peer} {state} {tx}:00000000 {timer}:00000014 {retries} 0 0 {inode} 1 0000 20 4 30 10 -1"


def line(peer: str = "0200000A:1267", state: str = "01", tx: int = 0, timer: str = "00", retries: int = 0) -> str:
    return LINE.format(peer=peer, state=state, tx=f"{tx:08X}", timer=timer, retries=f"{retries:08X}", inode=77)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (line(tx=4096, timer="01", retries=5), TcpConnection(77, "10.0.0.2", 4711, 4096, 5)),
        (
            line(tx=4096, timer="04", retries=5),
            TcpConnection(77, "10.0.0.2", 4711, 4096, 0),
        ),  # the peer answers, and is full
        (
            line(state="02", timer="01", retries=2),
            TcpConnection(77, "10.0.0.2", 4711, 0, 2),
        ),  # nobody takes the connection
        (line(), None),
        (line(state="0A", tx=3), None),
        (line("0000000000000000FFFF00000200000A:1267", tx=1, timer="01"), TcpConnection(77, "10.0.0.2", 4711, 1, 0)),
        (line("B80D0120000000000000000001000000:1267", tx=1), TcpConnection(77, "2001:db8::1", 4711, 1, 0)),
    ],
)
def test_a_pending_connection_is_reported_with_its_peer(text: str, found: TcpConnection | None) -> None:
    assert links.parse_connection(text) == found


def test_a_connection_is_reported_with_its_time_without_answer() -> None:
    since: dict[int, float] = {}
    cut, busy = TcpConnection(7, "10.0.0.2", 4711, 512, 4), TcpConnection(8, "10.0.0.3", 4711, 512, 0)
    assert [one["seconds"] for one in links.describe_silent_connections([cut, busy], since, 100.0)] == [3.0], (
        "four retries take that long"
    )
    told = {"peer": "10.0.0.2", "port": 4711, "unacked": 512, "retries": 4, "seconds": 6.5}
    assert links.describe_silent_connections([cut, busy], since, 106.5) == [told]
    assert links.describe_silent_connections([busy], since, 107.0) == []
    assert since == {}, "it has been answered"
