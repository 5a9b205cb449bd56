"""What a process answers to the supervisor's question: that it is there, and whether its threads get anywhere."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from celery.concurrency.thread import TaskPool

from server import celery, liveness
from server.asgi import MAX_THREADS, THREAD_NAME_PREFIX, DjangoHandler
from tests.polling import until


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The supervisor's end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(60)
    monkeypatch.setenv(liveness.LIVENESS_VARIABLE, str(theirs.detach()))
    with ours:
        yield ours


def query_liveness(line: socket.socket) -> bytes:
    line.send(b"?")
    return line.recv(liveness.MAX_MESSAGE_BYTES)


def test_a_web_process_with_blocked_threads_answers_and_reports_it(line: socket.socket) -> None:
    go = threading.Event()

    async def serve() -> None:
        handler = DjangoHandler()
        liveness.answer_in_loop(handler.run, THREAD_NAME_PREFIX)
        assert liveness.LIVENESS_VARIABLE not in os.environ
        first = await asyncio.to_thread(query_liveness, line)
        await asyncio.to_thread(until, lambda: query_liveness(line) != first, what="an idle pool gets on")
        waiting = [asyncio.ensure_future(handler.run(go.wait)) for _ in range(MAX_THREADS)]
        await asyncio.to_thread(
            until, lambda: query_liveness(line) == query_liveness(line) == query_liveness(line), what="none gets on"
        )
        go.set()
        await asyncio.gather(*waiting)
        stuck = await asyncio.to_thread(query_liveness, line)
        await asyncio.to_thread(until, lambda: query_liveness(line) != stuck, what="they get on again")

    try:
        asyncio.run(serve())
    finally:
        go.set()


def test_a_worker_answers_from_its_own_thread(line: socket.socket) -> None:
    pool, go, busy = TaskPool(2), threading.Event(), threading.Barrier(3)

    def work() -> None:
        busy.wait(60)
        go.wait(60)

    celery._answer_supervisor(SimpleNamespace(pool=pool))
    try:
        first = query_liveness(line)
        until(lambda: query_liveness(line) != first, what="an idle pool gets on")
        for _ in range(2):
            pool.executor.submit(work)
        busy.wait(60)
        until(lambda: query_liveness(line) == query_liveness(line) == query_liveness(line), what="none gets on")
        assert liveness.read_cpu_nanoseconds("ThreadPoolExecutor") > 0
        go.set()
        stuck = query_liveness(line)
        until(lambda: query_liveness(line) != stuck, what="they get on again")
    finally:
        go.set()
        pool.executor.shutdown()


def test_without_a_question_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(liveness.LIVENESS_VARIABLE, raising=False)
    assert not liveness.is_supervised()
    celery._answer_supervisor(SimpleNamespace())


def test_the_end_of_the_pipe_ends_the_thread(line: socket.socket) -> None:
    pool = TaskPool(1)
    celery._answer_supervisor(SimpleNamespace(pool=pool))
    assert query_liveness(line)
    line.close()
    until(lambda: not any(thread.name == "liveness" for thread in threading.enumerate()), what="it has ended")
    pool.executor.shutdown()
