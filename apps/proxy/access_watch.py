"""Closes open connections of users who have lost access: all are checked together every few seconds."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from django.db import close_old_connections

from apps.proxy import sessions, tickets
from apps.proxy.sessions import Pass

EVERY_S = 3.0
T = TypeVar("T")
log = logging.getLogger(__name__)
_database = ThreadPoolExecutor(4, "doors")


async def in_thread(ask: Callable[[], T]) -> T:
    """Run a database query in a thread and return its result."""

    def asked() -> T:
        close_old_connections()
        try:
            return ask()
        finally:
            close_old_connections()

    return await asyncio.get_running_loop().run_in_executor(_database, asked)


class Watch:
    """Checks the access of open connections."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], Pass] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def held(self, one: Pass) -> "Iterator[asyncio.Future[None]]":
        """Yield a future that is done when the access ends."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[over] = one
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        try:
            yield over
        finally:
            self._open.pop(over, None)

    async def _look(self) -> None:
        """Check while anything is open. An error is retried at the next check, so that no connection stays open
        unchecked."""
        while self._open:
            await asyncio.sleep(EVERY_S)
            passes = set(self._open.values())
            try:
                good = await in_thread(partial(self._good, passes))
            except Exception as error:
                log.warning("who may be inside cannot be looked up: %r", error)
                continue
            for over, one in list(self._open.items()):
                if one in passes and one not in good and not over.done():
                    over.set_result(None)

    @staticmethod
    def _good(passes: set[Pass]) -> set[Pass]:
        good = sessions.good(passes)
        tickets.keep([one.entry for one in good if one.entry])
        return good
