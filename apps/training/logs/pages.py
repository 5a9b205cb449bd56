"""Serves rank logs as pages of lines. Positions are byte offsets; a cursor says where to continue:

    "2@3:1024"          in attempt 2, in the log of rank 3
    "2@3:1024-1081"     there, and up to byte 1081 was already shown, as a line that is not complete yet
    "2@3:1024-1081-1-1"   the same, where one row of bars lies below that line, and the cursor went up by one row
    "2@0:1024,3:77"     in the logs of all ranks, by rank (a rank that is not named is read from its beginning)

Of a line that was overwritten (a progress bar) the newest state is shown, also while the line is not complete (`open`):
it is shown again as it grows, and last when it has ended. Its offset is where that state begins, so a line has the same
offset wherever reading began.

Escape sequences such as colours stay in the text. Searches and levels see the text without them.
"""

import re
import time
from collections.abc import Iterator
from copy import copy
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from django.conf import settings

from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.logs import filters
from apps.training.logs.filters import NO_FILTER, LogFilter
from apps.training.logs.levels import MAX_REACH_BYTES, LevelContext, TimestampParser
from apps.training.models import Task
from fermi.carriage_returns import CURSOR_UP, find_newest_state, render_lines
from fermi.cursor_movements import NO_GROUP, GroupState, LineReader, RowGroup, render_groups, strip_partial_code
from fermi.jobs.spec import LogChunk
from fermi.runner.record_frames import FrameFilter, find_partial_frame, find_text_end
from fermi.terminal_codes import remove_codes

PIECE_BYTES = 1 << 18  # bytes read at a time
MAX_SCAN_BYTES = 1 << 23  # bytes searched for one page; a search with few hits continues with the next page
MAX_PAGE_SECONDS = 2.0  # seconds after which a filtered page ends as well
MAX_LINE_BYTES = 1 << 16  # bytes of a line that are shown

_LINE_START = re.compile(rb"(?<=\n)|\r(?!\n)")
"""Where a line begins, or another state of one."""

LevelContexts = dict[int, tuple[int, LevelContext]]
"""By rank: an offset and the level context there. A caller that reads a log piece by piece keeps it."""


class LogPosition(NamedTuple):
    """Position in a log. `shown_to`: the byte up to which the line that begins there was already shown while it was
    open; 0: it was not. `group`: of bars one below the other, that it is in."""

    offset: int = 0
    shown_to: int = 0
    group: GroupState = NO_GROUP

    @property
    def shown_end(self) -> int:
        """Return the end of what was shown."""
        return self.shown_to or self.offset

    def __str__(self) -> str:
        shown: tuple[int, ...] = (self.offset, self.shown_to) if self.shown_to or self.group.height else (self.offset,)
        return "-".join(map(str, (*shown, *self.group) if self.group.height else shown))


class PrintedLine(NamedTuple):
    """A line of a rank's log. `level` and `at`: its own, or those of the line that it belongs to. `open`: it is not
    complete yet, and the next line of its rank replaces it."""

    rank: int
    offset: int
    text: str
    level: str | None = None
    at: datetime | None = None
    open: bool = False

    def serialize(self) -> dict[str, Any]:
        """Return the line as the API answers it, without its rank."""
        shown: dict[str, Any] = {"offset": self.offset, "text": self.text}
        if self.level is not None:
            shown["level"] = self.level
        if self.at is not None:
            shown["time"] = self.at
        if self.open:
            shown["open"] = True
        return shown


class _RawLine(NamedTuple):
    """A line in a piece of a log. `raw`: what is shown of it; None: nothing, as it was overwritten. `open_to`: it is
    not complete yet, and was printed up to there; 0: it is complete."""

    offset: int
    raw: bytes | None
    following: int
    open_to: int = 0
    group: GroupState = NO_GROUP


class LogPageReader:
    """Reader of the logs of one attempt. `known` is kept by callers that read the same logs again and again."""

    def __init__(self, task: Task, attempt: int, contexts: LevelContexts | None = None) -> None:
        self.task = task
        self.attempt = attempt
        self._backend = get_backend(task.cluster)
        self._handle = build_handle(task, attempt)
        self.clock = TimestampParser(lambda: self._begun, settings.LOG_ZONE)
        self._known = {} if contexts is None else contexts
        self._has_frames = False

    def chunk(self, rank: int, cursor: int, limit: int = PIECE_BYTES) -> LogChunk:
        """Return bytes of a rank's log from `cursor` on; a negative cursor counts from the end. Raises BackendError."""
        return self._backend.logs(self._handle, rank, cursor, limit)

    def everything(self) -> Iterator[bytes]:
        """Yield all ranks' logs one after the other, each below a line that names the rank."""
        for rank in range(self.task.world_size):
            yield b"==> rank %d <==\n" % rank
            yield from self.iterate_log(rank)
            yield b"\n"

    def iterate_log(self, rank: int) -> Iterator[bytes]:
        """Yield all that is in a rank's log now, piece by piece."""
        cursor, end, rest, printed, group = 0, False, b"", FrameFilter(), NO_GROUP
        while not end:
            chunk = self.chunk(rank, cursor, PIECE_BYTES)
            cursor, end = chunk.cursor, chunk.end
            text = rest + printed.feed(chunk.data)
            if group.height or CURSOR_UP.search(text):
                shown, read, group = render_groups(text, group, last=end)
                yield shown
                rest = text[read:]
            else:
                lines, feed, rest = text.rpartition(b"\n")
                if feed:
                    yield render_lines(lines) + feed
            if group.height:
                continue
            begin, _ = find_newest_state(rest)
            rest = rest[begin:]
            if rest and (end or len(rest) >= MAX_LINE_BYTES):
                yield render_lines(rest)
                rest = b""

    def page(
        self,
        rank: int,
        begin: LogPosition,
        limit: int,
        log_filter: LogFilter = NO_FILTER,
        scan: int = MAX_SCAN_BYTES,
        until: float | None = None,
        stop: int | None = None,
    ) -> tuple[list[PrintedLine], LogPosition, bool]:
        """Return up to `limit` lines from `begin` on, within about `scan` bytes, the position to continue at, and
        whether that is the end for now.

        A line that is still being written is returned if it is being overwritten; otherwise once its attempt has ended,
        or it has become too long to wait for. `until`: when to stop, by time.monotonic(); `stop`: where the end for now
        is, if that is known.
        """
        lines: list[PrintedLine] = []
        cursor, above, every = begin.offset, None, log_filter is NO_FILTER
        group, shown, end = begin.group, 0, stop is not None and begin.shown_end >= stop
        if end:
            return lines, begin, end
        while not end and cursor - begin.offset < scan:
            chunk = _cut_chunk(stop, self.chunk(rank, cursor, max(2 * MAX_LINE_BYTES, min(PIECE_BYTES, scan))))
            end = chunk.end
            for found in self._lines(cursor, chunk, group):
                offset, raw, cursor, open_to, group = found
                is_open = bool(open_to)
                shown = open_to or shown
                if raw is None or (is_open and shown <= begin.shown_to):
                    continue
                above = above or self.above(rank, begin.offset)
                plain = remove_codes(raw)
                if every or log_filter.accepts_text(plain):
                    level, at = (copy(above) if is_open else above).classify_line(
                        offset, plain.decode(errors="replace")
                    )
                    if every or log_filter.accepts_level(level, at):
                        lines.append(PrintedLine(rank, offset, raw.decode(errors="replace"), level, at, is_open))
                elif not is_open:
                    above.skip(offset, plain)
                if not is_open and (
                    len(lines) == limit or (every and cursor - begin.offset >= scan) or _is_past(until)
                ):
                    self._known[rank] = cursor, above
                    return lines, LogPosition(cursor, 0, group), False
        if above:
            self._known[rank] = cursor, above
        return lines, LogPosition(cursor, shown, group), end

    def tail(
        self,
        rank: int,
        limit: int,
        log_filter: LogFilter = NO_FILTER,
        scan: int = MAX_SCAN_BYTES,
        until: float | None = None,
    ) -> tuple[list[PrintedLine], LogPosition, bool]:
        """Return the last `limit` lines, within as many bytes as one page reads, as `page` does. More is read than
        usual where frames are between the lines."""
        end, reach = self.chunk(rank, -1).cursor, min(scan, limit * 2048) if log_filter is NO_FILTER else scan
        while True:
            found = self._read_tail(rank, max(0, end - reach), limit, log_filter, until)
            lines, *_ = found
            if len(lines) >= limit or reach >= min(scan, end) or not self._has_frames or _is_past(until):
                return found
            reach = min(scan, 4 * reach)

    def _read_tail(
        self, rank: int, begin: int, limit: int, log_filter: LogFilter, until: float | None
    ) -> tuple[list[PrintedLine], LogPosition, bool]:
        if begin and (whole := _LINE_START.search(self.chunk(rank, begin).data)):
            begin += whole.start()
        lines: list[PrintedLine] = []
        spot, at_end = LogPosition(begin), False
        while not at_end:
            found, spot, at_end = self.page(rank, spot, 10_000, log_filter, until=until)
            lines = (lines + found)[-limit:]
            if _is_past(until):
                break
        return lines, spot, at_end

    def above(self, rank: int, cursor: int) -> LevelContext:
        """Return the level context of the lines before `cursor`."""
        known, above = self._known.get(rank, (-1, None))
        if above is not None and known == cursor:
            return above
        above = LevelContext(self.clock)
        begin = max(0, cursor - MAX_REACH_BYTES)
        data = self.chunk(rank, begin, cursor - begin).data if cursor else b""
        whole = data.find(b"\n") + 1 if begin else 0
        for offset, raw, *_ in self._lines(begin + whole, LogChunk(data[whole:], cursor, end=False)):
            if raw is not None:
                above.skip(offset, remove_codes(raw))
        return above

    def _lines(self, cursor: int, chunk: LogChunk, group: GroupState = NO_GROUP) -> Iterator[_RawLine]:
        """Yield each whole line of a chunk, and what there is of the next one. A line begins after the frames before
        it. `group`: of the rows of bars at the cursor."""
        reader = LineReader(chunk.data, cursor, group)
        framed = reader.framed
        self._has_frames |= framed
        for line in reader:
            if isinstance(line, int):
                yield _RawLine(line, None, line)
            else:
                yield _RawLine(line.offset, line.text[:MAX_LINE_BYTES], line.following, group=line.group)
        if reader.group is not None:
            yield from self._list_open_rows(cursor, chunk, reader, reader.group)
            return
        begin, rest = reader.begin, reader.rest
        if not rest:
            return
        state, shown = find_newest_state(rest)
        offset, length = cursor + begin + state, len(rest) - state
        again = offset - 1 if state else offset  # from its carriage return on, by which it is known
        too_long = length >= MAX_LINE_BYTES and (len(shown) >= MAX_LINE_BYTES or not (framed and chunk.end))
        if too_long or (chunk.end and self._has_ended):
            piece = rest[state : state + MAX_LINE_BYTES]
            if framed:
                piece = piece[: find_partial_frame(piece)]
                shown = find_newest_state(piece)[1]
            yield _RawLine(offset, shown[:MAX_LINE_BYTES], offset + len(piece))
        elif chunk.end and b"\r" in rest:
            yield _RawLine(offset, shown, again, open_to=cursor + begin + find_text_end(rest))
        elif state:
            yield _RawLine(offset, None, again)

    def _list_open_rows(self, cursor: int, chunk: LogChunk, reader: LineReader, group: RowGroup) -> Iterator[_RawLine]:
        """Yield the rows of bars that are not printed over any more, and one open line with the others."""
        begin, end, rest = cursor + reader.begin, cursor + len(chunk.data), reader.rest
        group.write(begin, strip_partial_code(rest))
        has_ended, shown = chunk.end and self._has_ended, False
        for line in group.pop_settled_rows(end, end, everything=has_ended):
            yield _RawLine(line.offset, line.text[:MAX_LINE_BYTES], line.following, group=line.group)
            shown = line.following == end
        if shown:
            return
        following, state = group.find_place()
        if has_ended:
            yield _RawLine(end, None, end)
        elif chunk.end:
            offset, text = group.render()
            yield _RawLine(offset, text, following, begin + find_text_end(rest), state)
        else:
            following = following if following > cursor else end
            yield _RawLine(following, None, following, group=state)

    @cached_property
    def _begun(self) -> datetime:
        begun = self.task.attempts.filter(number=self.attempt).values_list("created_at", flat=True).first()
        return begun or now()

    @cached_property
    def _has_ended(self) -> bool:
        return self.task.attempts.filter(number=self.attempt, ended_at__isnull=False).exists()


def _cut_chunk(stop: int | None, chunk: LogChunk) -> LogChunk:
    if stop is None or chunk.cursor < stop:
        return chunk
    return LogChunk(chunk.data[: len(chunk.data) - (chunk.cursor - stop)], stop, end=True)


def _is_past(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


def read_page(task: Task, query: dict[str, Any]) -> dict[str, Any]:
    """Return the API's page of lines. `rank` is a number or `all`; `tail` starts with the newest lines. Raises ApiError
    400 for an invalid rank, cursor or filter."""
    wanted = filters.build_filter(query)
    begun, offsets = _parse_cursor(query.get("cursor", ""))
    attempt = query.get("attempt") or begun or max(task.attempt, 1)
    if begun != attempt:
        offsets = {}
    every = query["rank"] == "all"
    ranks = range(task.world_size) if every else [parse_rank(task, query["rank"])]
    reader, share, scan, ended = (
        LogPageReader(task, attempt),
        max(1, query["limit"] // len(ranks)),
        MAX_SCAN_BYTES // len(ranks),
        True,
    )
    until = None if wanted is NO_FILTER else time.monotonic() + MAX_PAGE_SECONDS
    shown: list[dict[str, Any]] = []
    for rank in ranks:
        if query["tail"] and not begun:
            lines, offsets[rank], end = reader.tail(rank, share, wanted, scan, until)
        else:
            lines, offsets[rank], end = reader.page(rank, offsets.get(rank, LogPosition()), share, wanted, scan, until)
        shown += [{**({"rank": rank} if every else {}), **line.serialize()} for line in lines]
        ended = ended and end
    cursor = f"{attempt}@{format_offsets(offsets)}"
    return {"rank": query["rank"], "attempt": attempt, "lines": shown, "cursor": cursor, "end": ended}


def _parse_cursor(cursor: str) -> tuple[int, dict[int, LogPosition]]:
    """Return the attempt and the offsets of a cursor; (0, {}) without one. Raises ApiError 400."""
    attempt, _, offsets = cursor.rpartition("@")
    try:
        return (_parse_offset(attempt), parse_offsets(offsets)) if cursor else (0, {})
    except ValueError:
        raise ApiError(400, "CURSOR_INVALID", "cursor", cursor=cursor) from None


def format_offsets(offsets: dict[int, LogPosition]) -> str:
    """Return the offsets as text."""
    return ",".join(f"{rank}:{spot}" for rank, spot in sorted(offsets.items()))


def parse_offsets(cursor: str) -> dict[int, LogPosition]:
    """Return the offsets in the text. Raises ValueError if it is no cursor."""
    offsets = {}
    for pair in filter(None, cursor.split(",")):
        rank, _, spot = pair.partition(":")
        offset, shown, below, height = _parse_spot(spot)
        offsets[_parse_offset(rank)] = LogPosition(offset, shown, GroupState(below, height) if height else NO_GROUP)
    return offsets


def _parse_spot(text: str) -> tuple[int, int, int, int]:
    numbers = [_parse_offset(part) for part in text.split("-")]
    if len(numbers) not in (1, 2, 4):
        raise ValueError(text)
    offset, shown, below, height = (*numbers, 0, 0, 0)[:4]
    return offset, shown, below, height


def _parse_offset(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ValueError(text)
    return int(text)


def parse_rank(task: Task, text: str) -> int:
    """Return the rank as a number. Raises ApiError 400 if the task has no such rank."""
    if not text.isdecimal() or len(text) > 9 or int(text) >= task.world_size:
        raise ApiError(400, "RANK_UNKNOWN", "rank", rank=text, high=task.world_size - 1)
    return int(text)
