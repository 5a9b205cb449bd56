r"""Bars that move the cursor up: of each of them, the newest state.

Several bars one below the other are printed over by moving the cursor. tqdm with `position=1` (`tqdm/std.py`, `moveto`)
and Rich's live display (`rich/live_render.py`, `position_cursor`) write

    \r 50%| epochs \n\r 10%| steps ESC[A \n\r 20%| steps ESC[A \n\r 30%| steps ESC[A …
    a 10% \n b 10% \r ESC[2K ESC[1A ESC[2K a 20% \n b 20% \r ESC[2K ESC[1A ESC[2K …

A raw line (up to a line feed) in which the cursor goes up is tied to the lines that it goes up to: they are a
`RowGroup`, a small screen. Text replaces what stands in its row. A row is settled once it lies higher than the cursor
has gone up in the group, and all rows are once a whole line stands below the lowest. So what is printed below the bars,
and a bar that stays when it has ended (`leave=True`), become lines as anything else.

Lines come in the order in which they were last printed, and a line's offset is where that state begins. Both follow
from the bytes alone. `GroupState`, with the offset of the oldest row that is not settled, is all that is needed to read
on.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fermi.carriage_returns import CURSOR_UP, find_newest_state
from fermi.runner.record_frames import FRAME_START, find_line_end, find_partial_frame, skip_frames

MAX_ROWS = 64
"""Rows of a group; the cursor goes no higher."""
MAX_REACH_BYTES = 1 << 16
"""A state that stands so far behind what is printed is settled: reading on begins at the oldest that is not."""

_MOVEMENT = re.compile(rb"\x1b\[(\d{0,3})([ABEFJ])")
"""Up, down, both to the beginning of the line, and ED, which erases what is below (ECMA-48, 8.3.22, 19, 12, 13, 39)."""
_ERASURE = re.compile(rb"\x1b\[[012]?K")
_PARTIAL_CODE = re.compile(rb"\x1b(?:\[[0-9;?]{0,16})?\Z")


class GroupState(NamedTuple):
    """A group at the row where reading goes on. `below`: how many rows the group has below that one. `height`: how far
    the cursor has gone up from the lowest row; 0: there is no group."""

    below: int = 0
    height: int = 0


NO_GROUP = GroupState()


class RenderedLine(NamedTuple):
    """A line that is complete. `following`, `group`: where the next one begins."""

    offset: int
    text: bytes
    following: int
    group: GroupState = NO_GROUP


class RowGroup:
    """Rows of a terminal that bars share, by number: 0 is where reading began."""

    def __init__(self, state: GroupState, begin: int) -> None:
        self._rows: dict[int, tuple[int, bytes]] = {}
        self._lowest, self._height = min(state.below, MAX_ROWS), min(state.height, MAX_ROWS)
        self._row, self._segment = 0, begin

    def write(self, offset: int, line: bytes) -> None:
        """Write a raw line, or what there is of it, which begins at `offset` of the log."""
        begin = 0
        for move in _MOVEMENT.finditer(line):
            wrote = self._write_row(offset + begin, line[begin : move.start()])
            begin = move.end()
            self._move(move, wrote)
        self._write_row(offset + begin, line[begin:])

    def _move(self, move: re.Match[bytes], wrote: bool) -> None:
        number, direction = move.groups()
        count = int(number or 0) or 1
        if direction in b"AF":
            self._row = max(self._row - count, self._lowest - MAX_ROWS)
            self._height = max(self._height, self._lowest - self._row)
        elif direction in b"BE":
            self._row = min(self._row + count, self._lowest)
        elif not int(number or 0):
            for row in [row for row in self._rows if row > self._row or (row == self._row and not wrote)]:
                del self._rows[row]

    def _write_row(self, offset: int, segment: bytes) -> bool:
        """Write text into the current row. Returns False if there is none; it may erase the row."""
        self._segment = offset
        if not segment:
            return False
        state, text = find_newest_state(segment)
        if has_text(text):
            self._rows[self._row] = offset + state, text.rstrip(b" ")
            return True
        if b" " in segment or _ERASURE.search(segment):
            self._rows.pop(self._row, None)
        return False

    def end_line(self) -> bool:
        """Move to the next row. Returns True if it lies below the group."""
        self._row += 1
        return self._row > self._lowest

    def extend(self, data: bytes, begin: int) -> bool:
        """Take in the raw lines from `begin` to the next one in which the cursor goes up into the group. Returns False
        if there is none."""
        found = find_group(data, begin, self._row - self._lowest + MAX_ROWS)
        if found is None or found.start != begin or found.state.height - found.state.below < self._row - self._lowest:
            return False
        self._lowest = self._row + found.state.below
        self._height = min(max(self._height, found.state.height), MAX_ROWS)
        return True

    def pop_settled_rows(self, printed: int, following: int, *, everything: bool = False) -> Iterator[RenderedLine]:
        """Yield the settled rows, or all. `printed`: how far the log has been read; `following`: where it goes on if no
        row is left."""
        while self._rows:
            row, (offset, text) = min(self._rows.items(), key=lambda item: item[1])
            high = row < self._lowest - self._height
            if not (everything or high or printed - offset >= MAX_REACH_BYTES):
                return
            del self._rows[row]
            place = self.find_place() if self._rows else (following, NO_GROUP if everything else self._state(self._row))
            yield RenderedLine(offset, text, *place)

    def find_place(self) -> tuple[int, GroupState]:
        """Return where to read on, so that every row that is left is read again."""
        row, offset = min(
            ((row, offset) for row, (offset, _) in self._rows.items()),
            key=lambda place: place[1],
            default=(self._row, self._segment),
        )
        return offset, self._state(row)

    def _state(self, row: int) -> GroupState:
        return GroupState(self._lowest - row, self._height) if row <= self._lowest else NO_GROUP

    def render(self) -> tuple[int, bytes]:
        """Return the rows one below the other, and the offset of the newest of them."""
        rows = [self._rows[row] for row in sorted(self._rows)]
        return max((offset for offset, _ in rows), default=self._segment), b"\n".join(text for _, text in rows)


class _FoundGroup(NamedTuple):
    start: int
    state: GroupState


class LineReader:
    """Iterates over the complete lines in a piece of a log that begins at `base`. Afterwards `begin` is where in the
    piece the raw line begins that is not complete, and `group` the group that it belongs to."""

    def __init__(self, data: bytes, base: int, state: GroupState = NO_GROUP) -> None:
        self.data, self.base, self.begin = data, base, 0
        self.framed = FRAME_START in data
        self.group = RowGroup(state, base) if state.height else None

    def __iter__(self) -> Iterator[RenderedLine | int]:
        """Yield the lines, and the offset behind frames where there are some between lines."""
        data, base = self.data, self.base
        found = None if self.group else find_group(data, 0)
        while True:
            if self.framed and (text := skip_frames(data, self.begin)) > self.begin:
                self.begin = text
                if self.group is None:
                    yield base + text
            if self.group is None and found and self.begin >= found.start:
                self.group = RowGroup(found.state, base + self.begin)
            end = self._find_end(self.begin)
            if end < 0:
                return
            line, following = data[self.begin : end], base + end + 1
            if self.group is None:
                state, text_ = find_newest_state(line)
                yield RenderedLine(base + self.begin + state, text_, following)
            else:
                group = self.group
                group.write(base + self.begin, line)
                left = group.end_line() and not group.extend(data, end + 1) and self._find_end(end + 1) >= 0
                yield from group.pop_settled_rows(following, following, everything=left)
                if left:
                    self.group, found = None, find_group(data, end + 1)
            self.begin = end + 1

    def _find_end(self, begin: int) -> int:
        return find_line_end(self.data, begin) if self.framed else self.data.find(b"\n", begin)

    @property
    def rest(self) -> bytes:
        """Return the raw line that is not complete, without what may be a part of a frame."""
        return self.data[self.begin : find_partial_frame(self.data)]


def render_groups(data: bytes, state: GroupState, *, last: bool) -> tuple[bytes, int, GroupState]:
    """Return the complete lines of `data` as they are shown, how much of it was read, and the group there. `last`: no
    data follows."""
    reader = LineReader(data, 0, state)
    shown = [line.text for line in reader if isinstance(line, RenderedLine)]
    place = reader.begin, NO_GROUP
    if reader.group is not None:
        reader.group.write(reader.begin, reader.rest)
        shown += [line.text for line in reader.group.pop_settled_rows(len(data), len(data), everything=last)]
        place = (len(data), NO_GROUP) if last else reader.group.find_place()
    rendered = b"".join(text + b"\n" for text in shown)
    if last and reader.group is not None and reader.rest:
        rendered = rendered.removesuffix(b"\n")
    return rendered, *place


def has_text(text: bytes) -> bool:
    """Return True if there is more than escape sequences and returns of the carriage."""
    return bool(_INVISIBLE.sub(b"", text).strip(b"\r"))


_INVISIBLE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def strip_partial_code(line: bytes) -> bytes:
    """Return the line without an escape sequence that is not complete at its end."""
    return _PARTIAL_CODE.sub(b"", line[-24:]) if len(line) <= 24 else line[:-24] + _PARTIAL_CODE.sub(b"", line[-24:])


def find_group(data: bytes, begin: int, reach: int = MAX_ROWS) -> _FoundGroup | None:
    """Return the first group of rows at `begin` or behind it: where the raw line begins to which the cursor goes up
    first, and how many rows lie below that one. None if the cursor goes up nowhere."""
    up = CURSOR_UP.search(data, begin)
    if up is None:
        return None
    start = max(data.rfind(b"\n", begin, up.start()) + 1, begin)
    end = data.find(b"\n", up.start())
    height, below = _measure_height(data[start : end if end >= 0 else len(data)]), 0
    while below < height and start > begin:
        start = max(data.rfind(b"\n", begin, start - 1) + 1, begin)
        below += not data.startswith(FRAME_START + b":", start)
    return _FoundGroup(start, GroupState(below, height))


def _measure_height(line: bytes) -> int:
    """Return how many rows the cursor goes up in a raw line."""
    row = highest = 0
    for move in _MOVEMENT.finditer(line):
        count = int(move[1] or 0) or 1
        if move[2] in b"AF":
            row -= count
            highest = min(highest, row)
        elif move[2] in b"BE":
            row = min(row + count, 0)
    return min(-highest, MAX_ROWS)
