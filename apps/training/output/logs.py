"""Rank logs as pages of lines. Positions are byte offsets; a cursor says where to go on reading:

"2@3:1024"          in attempt 2, in the log of rank 3
"2@0:1024,3:77"     in the logs of all ranks, by rank (a rank that is not named is read from its beginning)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apps.common.errors import ApiError
from apps.training.ground.launching import backend_for, handle_for
from apps.training.models import Task
from fermi.launch.spec import LogChunk

PIECE = 1 << 18  # bytes read at a time
SCAN = 1 << 23  # bytes looked through for one page; a search that finds little goes on with the next
LONGEST = 1 << 16  # bytes of a line that are shown


@dataclass(frozen=True, slots=True)
class Line:
    rank: int
    offset: int
    text: str


class Reader:
    """The logs of one attempt of a task."""

    def __init__(self, task: Task, attempt: int) -> None:
        self.task = task
        self.attempt = attempt
        self._backend = backend_for(task.cluster)
        self._handle = handle_for(task, attempt)

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
        self, rank: int, cursor: int, limit: int, search: str = "", scan: int = SCAN
    ) -> tuple[list[Line], int, bool]:
        """Up to `limit` lines from `cursor` on, within about `scan` bytes; where to go on; whether that is the end for
        now. A line that is still being written is shown once its attempt has ended, or it has become too long to wait
        for."""
        lines: list[Line] = []
        start = cursor
        while cursor - start < scan:
            chunk = self.chunk(rank, cursor)
            for line, following in self._lines(rank, cursor, chunk):
                if search.casefold() in line.text.casefold():
                    lines.append(line)
                cursor = following
                if len(lines) == limit:
                    return lines, cursor, False
            if chunk.end:
                return lines, cursor, True
        return lines, cursor, False

    def tail(self, rank: int, limit: int) -> tuple[list[Line], int, bool]:
        """The last `limit` lines, as far back as one page looks."""
        end = self.chunk(rank, -1).cursor
        begin = max(0, end - min(SCAN, limit * 2048))
        if begin:
            first = self.chunk(rank, begin)
            begin += first.data.find(b"\n") + 1
        lines: list[Line] = []
        at_end = False
        while not at_end:
            found, begin, at_end = self.page(rank, begin, 10_000)
            lines = (lines + found)[-limit:]
        return lines, begin, True

    def _lines(self, rank: int, cursor: int, chunk: LogChunk) -> Iterator[tuple[Line, int]]:
        """Each whole line of a chunk, with the offset behind it."""
        data, begin = chunk.data, 0
        while (newline := data.find(b"\n", begin)) >= 0:
            yield self._line(rank, cursor + begin, data[begin:newline]), cursor + newline + 1
            begin = newline + 1
        rest = data[begin:]
        if rest and (len(rest) >= LONGEST or (chunk.end and self._has_ended())):
            rest = rest[:LONGEST]
            yield self._line(rank, cursor + begin, rest), cursor + begin + len(rest)

    @staticmethod
    def _line(rank: int, offset: int, raw: bytes) -> Line:
        return Line(rank, offset, raw[:LONGEST].rstrip(b"\r").decode(errors="replace"))

    def _has_ended(self) -> bool:
        return self.task.attempts.filter(number=self.attempt, ended_at__isnull=False).exists()


def page(task: Task, query: dict[str, Any]) -> dict[str, Any]:
    """The API's page of lines. `rank` is a number or `all`; `tail` starts with the newest lines."""
    begun, offsets = _resume(query.get("cursor", ""))
    attempt = query.get("attempt") or begun or max(task.attempt, 1)
    if begun != attempt:
        offsets = {}
    every = query["rank"] == "all"
    ranks = range(task.world_size) if every else [rank_of(task, query["rank"])]
    reader, share, ended = Reader(task, attempt), max(1, query["limit"] // len(ranks)), True
    shown: list[dict[str, Any]] = []
    for rank in ranks:
        if query["tail"] and not begun:
            lines, offsets[rank], end = reader.tail(rank, share)
        else:
            lines, offsets[rank], end = reader.page(
                rank, offsets.get(rank, 0), share, query["search"], SCAN // len(ranks)
            )
        shown += [{**({"rank": rank} if every else {}), "offset": line.offset, "text": line.text} for line in lines]
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
