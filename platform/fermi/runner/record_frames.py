r"""Frames: how records travel in a rank's log, between what the rank prints. Standard library only, Python 3.9 or
later.

    ESC _fermi; {"source":"wandb","step":10,"values":{"loss":2.3}} ESC \        within a line
    ESC _fermi: {"source":"wandb","step":10,"values":{"loss":2.3}} ESC \ LF     where a line begins

(without the spaces)

An APC string (ECMA-48, 8.3.2), which terminals ignore. In the second form the line feed belongs to the frame: a runner
sees that the rank is at the beginning of a line, and the rank may print before the frame is written. So whoever reads a
log takes frames out, and has exactly what the rank printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

FRAME_START = b"\x1b_fermi"
MAX_FRAME_BYTES = 3500
MAX_TAIL_REACH_BYTES = 8 << 20
"""A rank's last records, all that its queue holds, may come after its last words."""
_FRAME = re.compile(rb"\x1b_fermi(?:;[ -~]{0,3500}\x1b\\|:[ -~]{0,3500}\x1b\\\n)")
_PARTIAL = re.compile(rb"\x1b_fermi(?:[;:][ -~]{0,3500}(?:\x1b\\?)?)?\Z")
_TORN = re.compile(rb"\A[ -~]{0,3500}(?:\x1b\\|\\)\n?")
_CONTENT = re.compile(rb"\{[ -~]{1,3480}\}")


def is_valid_record(record: bytes) -> bool:
    """Return True for what a frame can hold: an object as JSON in ASCII, on one line, and not too long."""
    return _CONTENT.fullmatch(record) is not None


def format_frame(record: bytes, *, own_line: bool) -> bytes:
    """Return the frame of a record; b"" if it is not valid. `own_line`: the output stands at the beginning of a
    line."""
    if not is_valid_record(record):
        return b""
    return b"\x1b_fermi:%b\x1b\\\n" % record if own_line else b"\x1b_fermi;%b\x1b\\" % record


def format_frames(records: Iterable[bytes], *, own_line: bool) -> bytes:
    """Return the frames of all valid records."""
    return b"".join(format_frame(record, own_line=own_line) for record in records)


def strip_frames(data: bytes, *, torn: bool = False) -> bytes:
    """Return the data without whole frames. `torn`: without parts of frames at its beginning and its end as well."""
    if torn:
        data = data[: find_partial_frame(data)]
        if (cut := _TORN.match(data)) and not data.startswith(FRAME_START):
            data = data[cut.end() :]
    return _FRAME.sub(b"", data) if FRAME_START in data else data


def iterate_frames(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield where each whole frame begins and ends in the data, and its record."""
    if FRAME_START in data:
        for found in _FRAME.finditer(data):
            yield found.start(), found.end(), found.group()[len(FRAME_START) + 1 :].rstrip(b"\n")[:-2]


def skip_frames(data: bytes, begin: int) -> int:
    """Return the end of the whole frames that stand at `begin` one after the other."""
    while found := _FRAME.match(data, begin):
        begin = found.end()
    return begin


def find_partial_frame(data: bytes) -> int:
    """Return where a frame begins that is not complete at the end of the data; its length, if none does."""
    at = data.rfind(FRAME_START, max(0, len(data) - MAX_FRAME_BYTES - 16))
    if at >= 0 and _PARTIAL.match(data, at) and not _FRAME.match(data, at):
        return at
    for length in range(min(len(FRAME_START) - 1, len(data)), 0, -1):
        if data.endswith(FRAME_START[:length]):
            return len(data) - length
    return len(data)


def find_text_end(data: bytes) -> int:
    """Return where the text ends that only whole frames follow."""
    end = len(data)
    for begin, behind, _ in reversed([*iterate_frames(data)]):
        if behind != end:
            break
        end = begin
    return end


def find_line_end(data: bytes, begin: int) -> int:
    """Return where the line ends that begins at `begin`: the place of its line feed, which is not that of a frame; -1
    if it does not end in the data."""
    end = data.find(b"\n", begin)
    at = data.find(FRAME_START, begin, end) if end >= 0 else -1
    while at >= 0:
        found = _FRAME.match(data, at)
        if found and found.end() > end:
            end = data.find(b"\n", found.end())
            if end < 0:
                return -1
        at = data.find(FRAME_START, found.end() if found else at + 1, end)
    return end


def read_tail(read: Callable[[int], bytes], size: int) -> bytes:
    """Return the last `size` bytes of a log without its frames. `read` returns the last bytes of the log, as many as
    requested. Fewer are returned where more than MAX_TAIL_REACH_BYTES of frames are between them."""
    reach = size
    while True:
        data = read(reach)
        printed = strip_frames(data, torn=True) if FRAME_START[:1] in data else data
        if len(data) < reach or len(printed) >= size or reach >= MAX_TAIL_REACH_BYTES or printed is data:
            return printed[-size:]
        reach = min(16 * reach, MAX_TAIL_REACH_BYTES)


class FrameFilter:
    """Takes the frames out of a log that comes in pieces."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """Return the data without frames. A frame that is not complete waits for the next piece; there is none after
        the `last`."""
        data = self.rest + data
        end = len(data) if last else find_partial_frame(data)
        self.rest = data[end:]
        return strip_frames(data[:end])
