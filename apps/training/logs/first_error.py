"""Finds the first error of an attempt.

Up to WINDOW_BYTES at both ends of all logs together are searched, shared among the ranks: an early failure is at the
beginning, and what ended the attempt at the end. For a longer log the answer says that the middle was left out.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from apps.training.logs import levels, pages
from apps.training.logs.pages import MAX_LINE_BYTES, LogPageReader, PrintedLine
from apps.training.models import Task
from fermi.carriage_returns import find_newest_state
from fermi.terminal_codes import remove_codes

WINDOW_BYTES = 32 << 20  # bytes at each end of all logs together
PIECE_BYTES = 1 << 20  # bytes read at a time

ERROR_HINTS = (
    r"(?i)(?:\b|\[[0-9;]*m)(?:err|crit|critical|fatal|severe)\b|(?:error|exception|interrupt)\b|traceback"
    r"|terminate called|segmentation fault|aborted|[efc]\d{3,4} \d\d:|\[nemo [ec] |: [efc] "
)
"""Matches each line that says it is an error, and few others. Only matching lines are parsed."""


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """A line that says it is an error. `said_at`: the time in the line itself."""

    line: PrintedLine
    said_at: datetime | None


def find_first_error(task: Task, query: dict[str, Any]) -> dict[str, Any]:
    """Return the first error of the attempt as the API answers it."""
    attempt = query.get("attempt") or max(task.attempt, 1)
    blamed = _find_blamed_rank(task, attempt)
    if query["rank"] == "all":
        ranks = sorted(range(task.world_size), key=lambda rank: (rank != blamed, rank))
    else:
        ranks = [pages.parse_rank(task, query["rank"])]
    reader, window = LogPageReader(task, attempt), max(MAX_LINE_BYTES, WINDOW_BYTES // len(ranks))
    until = time.monotonic() + pages.MAX_PAGE_SECONDS
    errors, complete, unread = [], True, 0
    for place, rank in enumerate(ranks):
        if time.monotonic() > until:
            complete, unread = False, len(ranks) - place
            break
        found, whole = _search_rank(reader, rank, window)
        complete = complete and whole
        if found:
            errors.append(found)
    first = _choose_first(errors, blamed)
    shown = {"rank": first.rank, **first.serialize()} if first else None
    return {"attempt": attempt, "found": shown, "complete": complete, "windowBytes": window, "ranksUnread": unread}


def _find_blamed_rank(task: Task, attempt: int) -> int | None:
    """Return the rank that failed first, as the platform observed it; None if none did."""
    params = task.attempts.filter(number=attempt).values_list("outcome_params", flat=True).first() or {}
    rank = params.get("rank")
    return rank if isinstance(rank, int) else None


def _choose_first(errors: list[ErrorLine], blamed: int | None) -> PrintedLine | None:
    """Return the earliest error. If one of them has no time, the error of the blamed rank, or else of the lowest
    one."""
    if not errors:
        return None
    if all(error.said_at for error in errors):
        return min(errors, key=lambda error: (error.said_at, error.line.rank)).line
    return min((error.line for error in errors), key=lambda line: (line.rank != blamed, line.rank))


def _search_rank(reader: LogPageReader, rank: int, window: int) -> tuple[ErrorLine | None, bool]:
    """Return the rank's first error, and whether the search left out no earlier one."""
    size = reader.chunk(rank, -1).cursor
    if size <= 2 * window:
        return _search_range(reader, rank, 0, size), True
    if found := _search_range(reader, rank, 0, window):
        return found, True
    return _search_range(reader, rank, size - window, size), False


def _search_range(reader: LogPageReader, rank: int, begin: int, end: int) -> ErrorLine | None:
    """Return the first error in the lines that begin in this range of bytes. A partial line at its beginning is
    skipped."""
    skip = begin > 0
    while begin < end:
        chunk = reader.chunk(rank, begin, min(PIECE_BYTES, end - begin + MAX_LINE_BYTES))
        whole = len(chunk.data) if chunk.end else chunk.data.rfind(b"\n") + 1 or len(chunk.data)
        start = chunk.data.find(b"\n") + 1 if skip else 0
        if found := _search_piece(reader, rank, begin, chunk.data[:whole], start, end - begin):
            return found
        if not whole:
            return None
        begin, skip = begin + whole, False
    return None


def _search_piece(reader: LogPageReader, rank: int, begin: int, data: bytes, start: int, stop: int) -> ErrorLine | None:
    """Return the first error in the lines of `data` that begin between `start` and `stop`."""
    hints = _compile_hints()
    while hint := hints.search(data, start):
        line = data.rfind(b"\n", start, hint.start()) + 1 or start
        start = data.find(b"\n", hint.start()) + 1 or len(data)
        if line >= stop:
            return None
        state, shown = find_newest_state(data[line:start].removesuffix(b"\n"))
        shown = shown[:MAX_LINE_BYTES]
        text, plain = shown.decode(errors="replace"), remove_codes(shown).decode(errors="replace")
        if (said := levels.parse_level(plain, reader.clock)).level == "error":
            offset = begin + line + state
            level, at = reader.above(rank, offset).classify_line(offset, plain)
            return ErrorLine(PrintedLine(rank, offset, text, level, at), said.at)
    return None


@cache
def _compile_hints() -> Any:
    import re2

    options = re2.Options()
    options.never_capture = True
    return re2.compile(ERROR_HINTS.encode(), options)
