"""Logs of ranks, page by page and across attempts."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

from fermi.client.transport import Transport
from fermi.client.types import TaskDetail

POLL_SECONDS = 0.5


class LogLine(NamedTuple):
    """A line of a rank's log. `offset` counts bytes from the beginning of the rank's log in that attempt. `level`
    (debug, info, warning, error) and `time` (ISO 8601) are the line's own, or those of the line that it belongs to,
    where they are known. `open`: the line is not complete yet (a progress bar), and the next line of its rank replaces
    it."""

    attempt: int
    rank: int
    offset: int
    text: str
    level: str | None = None
    time: str | None = None
    open: bool = False


def read_log(
    transport: Transport,
    path: str,
    params: Mapping[str, Any],
    attempt: int | None,
    cursor: str | None = None,
    patience: float = 0.0,
) -> Generator[LogLine, None, str]:
    """Yield the lines that exist now, from `cursor` on; return the cursor after them."""
    while True:
        asked = {**params, "attempt": attempt, "cursor": cursor}
        page = transport.call("GET", path, params=asked, patience=patience)
        for line in page["lines"]:
            rank = int(line.get("rank", page["rank"]))
            about = line.get("level"), line.get("time"), line.get("open", False)
            yield LogLine(page["attempt"], rank, line["offset"], line["text"], *about)
        if page["end"] or page["cursor"] == cursor:
            return page["cursor"]
        attempt, cursor = page["attempt"], page["cursor"]  # a cursor is one attempt's, whichever is the newest by now


def follow_log(
    transport: Transport,
    path: str,
    params: Mapping[str, Any],
    task: Callable[[], TaskDetail],
    attempt: int | None,
    patience: float,
    cursor: str | None = None,
) -> Iterator[LogLine]:
    """Yield the lines that exist and those still to come, until the task has ended, or the attempt where one was
    given."""
    pinned = attempt is not None
    while True:
        now = task()
        newest = now["attempt"]
        attempt = attempt or newest or None
        # Asked before reading: if the attempt was over by then, reading to the end reads all of it.
        over = now["endedAt"] is not None or (attempt is not None and newest > attempt)
        if attempt is not None:
            cursor = yield from read_log(transport, path, params, attempt, cursor, patience)
        if not over:
            time.sleep(POLL_SECONDS)
        elif attempt is None or pinned or newest <= attempt:
            return
        else:
            attempt, cursor = attempt + 1, None
