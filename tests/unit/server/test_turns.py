"""Request threads: one works while it gets on, another one as soon as it waits."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from server import executor
from server.executor import TakingTurns


async def ask(pool: TakingTurns, *functions: Callable[[], Any]) -> list[Any]:
    loop = asyncio.get_running_loop()
    return await asyncio.wait_for(asyncio.gather(*(loop.run_in_executor(pool, f) for f in functions)), 60)


def test_requests_that_get_on_run_one_after_the_other_in_one_thread() -> None:
    began: list[int] = []
    ended: list[int] = []

    def request(number: int) -> str:
        began.append(number)
        assert ended == began[:-1]
        ended.append(number)
        return threading.current_thread().name

    names = asyncio.run(ask(TakingTurns(4, "request"), *(lambda n=n: request(n) for n in range(50))))
    assert began == list(range(50))
    assert set(names) == {"request_0"}


def test_a_request_that_waits_lets_the_next_one_begin_and_none_is_lost_or_done_twice() -> None:
    async def scene() -> list[str]:
        pool, door = TakingTurns(4, "request"), threading.Event()
        waiting = asyncio.ensure_future(ask(pool, lambda: (door.wait(60), "first")[1]))
        others = await ask(pool, *(lambda n=n: f"other {n}" for n in range(10)))
        assert not waiting.done()
        door.set()
        again = await ask(pool, *(lambda n=n: f"again {n}" for n in range(10)))
        return [*await waiting, *others, *again]

    expected = ["first", *(f"other {n}" for n in range(10)), *(f"again {n}" for n in range(10))]
    assert asyncio.run(scene()) == expected


def test_when_all_threads_wait_the_rest_waits_too_and_is_done_in_the_end() -> None:
    async def scene() -> int:
        pool, door, inside = TakingTurns(3, "request"), threading.Event(), threading.Semaphore(0)

        def request() -> int:
            inside.release()
            door.wait(60)
            return 1

        asked = asyncio.ensure_future(ask(pool, *[request] * 5))
        for _ in range(3):
            await asyncio.to_thread(inside.acquire)
        assert not inside.acquire(blocking=False)
        door.set()
        return sum(await asked)

    assert asyncio.run(scene()) == 5


def test_an_error_reaches_whoever_asked_and_the_next_request_runs() -> None:
    async def scene() -> list[int]:
        pool = TakingTurns(2, "request")
        with pytest.raises(ZeroDivisionError):
            await ask(pool, lambda: 1 // 0)
        return await ask(pool, lambda: 1)

    assert asyncio.run(scene()) == [1]


def test_the_event_loop_waits_for_what_is_done_soon_and_turns_to_others_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "LOOP_WAITS", 60)

    async def scene() -> tuple[str, list[str]]:
        pool, others = TakingTurns(2, "request"), list[str]()
        asyncio.get_running_loop().call_soon(others.append, "another")
        return await pool.do(lambda: "soon"), others[:]

    assert asyncio.run(scene()) == ("soon", [])


def test_the_event_loop_goes_on_where_a_request_waits_and_those_behind_it_are_done() -> None:
    async def scene() -> list[str]:
        pool, door = TakingTurns(2, "request"), threading.Event()
        waiting = asyncio.ensure_future(pool.do(lambda: (door.wait(60), "first")[1]))
        others = [await asyncio.wait_for(pool.do(lambda n=n: f"other {n}"), 60) for n in range(5)]  # type: ignore[misc]
        assert not waiting.done()
        door.set()
        return [await waiting, *others]

    assert asyncio.run(scene()) == ["first", *(f"other {n}" for n in range(5))]


@pytest.mark.parametrize("error", [ZeroDivisionError, TimeoutError])
def test_an_error_that_the_event_loop_waited_for_is_the_request_s_own(error: type[Exception]) -> None:
    def fails() -> None:
        raise error("of the request")

    with pytest.raises(error, match="of the request"):
        asyncio.run(TakingTurns(2, "request").do(fails))
