"""Bytes from socket to socket: all of them, in order, for slow sides too, and who broke off."""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable

import pytest

from fermi.envd.socket_splice import MAX_BUFFER_BYTES, TargetClosedError, splice_sockets, splice_sockets_blocking

BODY = os.urandom(1 << 16) * 100


class Ways:
    """source ──▶ (ours) pour (ours) ──▶ target"""

    def __init__(self) -> None:
        self.source, self.out = socket.socketpair()
        self.into, self.target = socket.socketpair()
        for ours in (self.out, self.into):
            ours.setblocking(False)

    def give(self, data: bytes) -> None:
        def giving() -> None:
            self.source.sendall(data)
            self.source.shutdown(socket.SHUT_WR)

        threading.Thread(target=giving, daemon=True).start()

    def take(self) -> Callable[[], bytes]:
        taken: list[bytes] = []

        def taking() -> None:
            while data := self.target.recv(1 << 12):  # slower than whoever gives
                taken.append(data)

        thread = threading.Thread(target=taking, daemon=True)
        thread.start()

        def all_of_it() -> bytes:
            self.into.shutdown(socket.SHUT_WR)
            thread.join(60)
            return b"".join(taken)

        return all_of_it


@pytest.fixture
def ways() -> Ways:
    return Ways()


def run(work: Awaitable[int]) -> int:
    async def within() -> int:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(within())


def test_all_bytes_arrive_in_order_with_a_slow_reader(ways: Ways) -> None:
    taken, pieces = ways.take(), []
    ways.give(BODY)
    assert run(splice_sockets(ways.out, ways.into, on_data=lambda: pieces.append(1))) == len(BODY)
    assert taken() == BODY
    assert len(pieces) >= len(BODY) // MAX_BUFFER_BYTES


def test_no_more_bytes_are_read_than_requested(ways: Ways) -> None:
    taken = ways.take()
    ways.give(BODY)
    assert run(splice_sockets(ways.out, ways.into, count=100_001)) == 100_001
    ways.out.setblocking(True)
    assert ways.out.recv(16, socket.MSG_WAITALL) == BODY[100_001:100_017], "the rest is the next one's"
    assert taken() == BODY[:100_001]


def test_a_thread_reads_no_more_bytes_than_requested(ways: Ways) -> None:
    taken = ways.take()
    ways.give(BODY)
    assert splice_sockets_blocking(ways.out, ways.into, 3_000_001) == 3_000_001
    ways.out.setblocking(True)
    assert ways.out.recv(16, socket.MSG_WAITALL) == BODY[3_000_001:3_000_017], "the rest is the next one's"
    assert taken() == BODY[:3_000_001]


def test_a_thread_reports_which_side_failed(ways: Ways) -> None:
    ways.give(BODY)
    ways.target.close()
    with pytest.raises(TargetClosedError):
        splice_sockets_blocking(ways.out, ways.into, len(BODY))


def test_a_thread_copies_like_the_event_loop(ways: Ways) -> None:
    taken = ways.take()
    ways.give(BODY)
    assert splice_sockets_blocking(ways.out, ways.into, len(BODY) + 1) == len(BODY), "an early end"
    assert taken() == BODY


def test_a_waiting_thread_ends_when_its_socket_is_shut_down(ways: Ways) -> None:
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(splice_sockets_blocking(ways.out, ways.into, 10)), daemon=True
    )
    thread.start()
    ways.source.sendall(b"some")
    assert ways.target.recv(4, socket.MSG_WAITALL) == b"some"
    ways.out.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert found == [4]


def test_an_early_end_shows_in_the_count(ways: Ways) -> None:
    taken = ways.take()
    ways.give(b"short")
    assert run(splice_sockets(ways.out, ways.into, count=10)) == 5
    assert taken() == b"short"


def test_the_failing_side_is_reported(ways: Ways) -> None:
    ways.give(BODY)
    ways.target.close()
    with pytest.raises(TargetClosedError):
        run(splice_sockets(ways.out, ways.into))
