"""Closes open connections of users who have lost access: all are checked together every few seconds."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from django.db import close_old_connections

from apps.proxy import authorizations, tickets
from apps.proxy.authorizations import Authorization

CHECK_SECONDS = 3.0
T = TypeVar("T")
log = logging.getLogger(__name__)
_database_threads = ThreadPoolExecutor(4, "doors")


async def run_in_thread(query: Callable[[], T]) -> T:
    """Run a database query in a thread and return its result."""

    def run_query() -> T:
        close_old_connections()
        try:
            return query()
        finally:
            close_old_connections()

    return await asyncio.get_running_loop().run_in_executor(_database_threads, run_query)


class RevocationWatcher:
    """Checks the access of open connections."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], Authorization] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watch_access(self, authorization: Authorization) -> "Iterator[asyncio.Future[None]]":
        """Yield a future that is done when the access ends."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[over] = authorization
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
            await asyncio.sleep(CHECK_SECONDS)
            passes = set(self._open.values())
            try:
                good = await run_in_thread(partial(self._good, passes))
            except Exception as error:
                log.warning("who may be inside cannot be looked up: %r", error)
                continue
            for over, one in list(self._open.items()):
                if one in passes and one not in good and not over.done():
                    over.set_result(None)

    @staticmethod
    def _good(passes: set[Authorization]) -> set[Authorization]:
        good = authorizations.filter_valid(passes)
        tickets.extend_sessions([one.entry for one in good if one.entry])
        return good
