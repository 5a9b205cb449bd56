"""Rank logs as pages of lines. Positions are byte offsets; a cursor says where to go on reading:

"2@3:1024"          in attempt 2, in the log of rank 3
"2@0:1024,3:77"     in the logs of all ranks, by rank (a rank that is not named is read from its beginning)
"""

import time
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from django.conf import settings

from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.ground.launching import backend_for, handle_for
from apps.training.models import Task
from apps.training.output import filters
from apps.training.output.filters import EVERYTHING, Filter
from apps.training.output.levels import REACH, Above, Clock
from fermi.launch.spec import LogChunk

PIECE = 1 << 18  # bytes read at a time
SCAN = 1 << 23  # bytes looked through for one page; a search that finds little goes on with the next
PATIENCE = 2.0  # seconds after which a page that filters ends as well, and the next goes on
LONGEST = 1 << 16  # bytes of a line that are shown

Known = dict[int, tuple[int, Above]]
"""By rank: what the lines before an offset say of the next one. Who reads a log piece by piece keeps it."""


class Line(NamedTuple):
    """`level` and `at`: its own, or those of the line that it belongs to."""

    rank: int
    offset: int
    text: str
    level: str | None = None
    at: datetime | None = None

    def shown(self) -> dict[str, Any]:
        """Without its rank."""
        shown: dict[str, Any] = {"offset": self.offset, "text": self.text}
        if self.level is not None:
            shown["level"] = self.level
        if self.at is not None:
            shown["time"] = self.at
        return shown


class Reader:
    """The logs of one attempt of a task. `known` outlives it where the same logs are read on and on."""

    def __init__(self, task: Task, attempt: int, known: Known | None = None) -> None:
        self.task = task
        self.attempt = attempt
        self._backend = backend_for(task.cluster)
        self._handle = handle_for(task, attempt)
        self.clock = Clock(lambda: self._begun, settings.LOG_ZONE)
        self._known = {} if known is None else known

    def chunk(self, rank: int, cursor: int, limit: int = PIECE) -> LogChunk:
        return self._backend.logs(self._handle, rank, cursor, limit)

    def everything(self) -> Iterator[bytes]:
        """One rank's log after the other's, each below a line that names it."""
        for rank in range(self.task.world_size):
            yield b"==> rank %d <==\n" % rank
            yield from self.whole(rank)
            yield b"\n"

    def whole(self, rank: int) -> Iterator[bytes]:
        """Everything that is there now, piece by piece."""
        cursor, end = 0, False
        while not end:
            chunk = self.chunk(rank, cursor)
            cursor, end = chunk.cursor, chunk.end
            if chunk.data:
                yield chunk.data

    def page(
        self,
        rank: int,
        cursor: int,
        limit: int,
        wanted: Filter = EVERYTHING,
        scan: int = SCAN,
        until: float | None = None,
        stop: int | None = None,
    ) -> tuple[list[Line], int, bool]:
        """Up to `limit` lines from `cursor` on, within about `scan` bytes; where to go on; whether that is the end for
        now. A line that is still being written is shown once its attempt has ended, or it has become too long to wait
        for. `until`: when to stop looking, by time.monotonic(); `stop`: where the end for now is, if that is known."""
        lines: list[Line] = []
        begin, above, every = cursor, None, wanted is EVERYTHING
        end = stop is not None and cursor >= stop
        while not end and cursor - begin < scan:
            chunk = self.chunk(rank, cursor, max(2 * LONGEST, min(PIECE, scan)))
            end = chunk.end
            for offset, raw, following in self._lines(cursor, chunk):
                above = above or self.above(rank, begin)
                cursor = following
                if every or wanted.wants(raw):
                    text = raw.decode(errors="replace")
                    level, at = above.take(offset, text)
                    if every or wanted.wants_of(level, at):
                        lines.append(Line(rank, offset, text, level, at))
                else:
                    above.skip(offset, raw)
                if stop is not None and cursor >= stop:
                    end = True
                    break
                if len(lines) == limit or (every and cursor - begin >= scan) or _is_over(until):
                    self._known[rank] = cursor, above
                    return lines, cursor, False
        if above:
            self._known[rank] = cursor, above
        return lines, cursor, end

    def tail(
        self, rank: int, limit: int, wanted: Filter = EVERYTHING, scan: int = SCAN, until: float | None = None
    ) -> tuple[list[Line], int, bool]:
        """The last `limit` lines, as far back as one page looks."""
        end = self.chunk(rank, -1).cursor
        begin = max(0, end - (min(scan, limit * 2048) if wanted is EVERYTHING else scan))
        if begin:
            first = self.chunk(rank, begin)
            begin += first.data.find(b"\n") + 1
        lines: list[Line] = []
        at_end = False
        while not at_end:
            found, begin, at_end = self.page(rank, begin, 10_000, wanted, until=until)
            lines = (lines + found)[-limit:]
            if _is_over(until):
                break
        return lines, begin, at_end

    def above(self, rank: int, cursor: int) -> Above:
        """What the lines before `cursor` say of the next one."""
        known, above = self._known.get(rank, (-1, None))
        if above is not None and known == cursor:
            return above
        above = Above(self.clock)
        begin = max(0, cursor - REACH)
        data = self.chunk(rank, begin, cursor - begin).data if cursor else b""
        whole = data.find(b"\n") + 1 if begin else 0
        for offset, raw, _ in self._lines(begin + whole, LogChunk(data[whole:], cursor, end=False)):
            above.skip(offset, raw)
        return above

    def _lines(self, cursor: int, chunk: LogChunk) -> Iterator[tuple[int, bytes, int]]:
        """Each whole line of a chunk: its offset, what is shown of it, the offset behind it."""
        data, begin = chunk.data, 0
        while (newline := data.find(b"\n", begin)) >= 0:
            yield cursor + begin, data[begin:newline][:LONGEST].rstrip(b"\r"), cursor + newline + 1
            begin = newline + 1
        rest = data[begin:]
        if rest and (len(rest) >= LONGEST or (chunk.end and self._has_ended())):
            rest = rest[:LONGEST]
            yield cursor + begin, rest.rstrip(b"\r"), cursor + begin + len(rest)

    @cached_property
    def _begun(self) -> datetime:
        begun = self.task.attempts.filter(number=self.attempt).values_list("created_at", flat=True).first()
        return begun or now()

    def _has_ended(self) -> bool:
        return self.task.attempts.filter(number=self.attempt, ended_at__isnull=False).exists()


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


def page(task: Task, query: dict[str, Any]) -> dict[str, Any]:
    """The API's page of lines. `rank` is a number or `all`; `tail` starts with the newest lines."""
    wanted = filters.asked_for(query)
    begun, offsets = _resume(query.get("cursor", ""))
    attempt = query.get("attempt") or begun or max(task.attempt, 1)
    if begun != attempt:
        offsets = {}
    every = query["rank"] == "all"
    ranks = range(task.world_size) if every else [rank_of(task, query["rank"])]
    reader, share, scan, ended = Reader(task, attempt), max(1, query["limit"] // len(ranks)), SCAN // len(ranks), True
    until = None if wanted is EVERYTHING else time.monotonic() + PATIENCE
    shown: list[dict[str, Any]] = []
    for rank in ranks:
        if query["tail"] and not begun:
            lines, offsets[rank], end = reader.tail(rank, share, wanted, scan, until)
        else:
            lines, offsets[rank], end = reader.page(rank, offsets.get(rank, 0), share, wanted, scan, until)
        shown += [{**({"rank": rank} if every else {}), **line.shown()} for line in lines]
        ended = ended and end
    cursor = f"{attempt}@{cursor_of(offsets)}"
    return {"rank": query["rank"], "attempt": attempt, "lines": shown, "cursor": cursor, "end": ended}


def _resume(cursor: str) -> tuple[int, dict[int, int]]:
    """The attempt and the offsets; (0, {}) without a cursor."""
    attempt, _, offsets = cursor.rpartition("@")
    try:
        return (_offset(attempt), offsets_of(offsets)) if cursor else (0, {})
    except ValueError:
        raise ApiError(400, "CURSOR_INVALID", "cursor", cursor=cursor) from None


def cursor_of(offsets: dict[int, int]) -> str:
    return ",".join(f"{rank}:{offset}" for rank, offset in sorted(offsets.items()))


def offsets_of(cursor: str) -> dict[int, int]:
    """Raises ValueError when the text is no cursor."""
    offsets = {}
    for pair in filter(None, cursor.split(",")):
        rank, _, offset = pair.partition(":")
        offsets[_offset(rank)] = _offset(offset)
    return offsets


def _offset(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ValueError(text)
    return int(text)


def rank_of(task: Task, text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) >= task.world_size:
        raise ApiError(400, "RANK_UNKNOWN", "rank", rank=text, high=task.world_size - 1)
    return int(text)
