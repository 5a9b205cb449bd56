r"""What a terminal shows of a line that was printed over: of a progress bar, the newest state.

A bar of tqdm, pip, wget or Keras prints its states one over the other, and a line feed at its end only:

    \r 1%|1        | 1/100\r 2%|2        | 2/100 … \r100%|#########| 100/100\n

A carriage return goes back to the beginning of the line, so the text after it replaces the text before. A program that
prints a shorter state pads it with spaces (`tqdm/std.py`, `status_printer`) or erases the line with EL, `ESC [ K`
(ECMA-48, 8.3.41). A backspace goes back by one character. A code that moves the cursor up ends a state as a carriage
return does; `fermi.cursor_movements` knows what becomes of the rows above.
Frames of records (`fermi.runner.record_frames`), which terminals ignore, are left out.
"""

import re

from fermi.runner.record_frames import strip_frames

CURSOR_UP = re.compile(rb"\x1b\[\d{0,3}[AF]")
"""Up, and up to the beginning of the line (ECMA-48, 8.3.22 and 8.3.13)."""
_ESCAPE_CODE = re.compile(rb"\x1b\[[0-9;?]*[A-JL-Za-z]")
"""Colours and the like, which show nothing by themselves; not EL, after which a line is empty."""
_ERASED_BEFORE = re.compile(rb"\x1b\[[12]K")
_ERASED_AFTER = re.compile(rb"\x1b\[0?K")
"""The text before the first of these two codes is erased. After the second one nothing is shown yet."""


def find_newest_state(line: bytes) -> tuple[int, bytes]:
    """Return the offset in `line` (without its line feed) at which the state begins that a terminal shows last, and the
    text shown. A line without carriage returns has one state: all of it."""
    start = _find_newest_row(line) if b"\x1b[" in line else 0
    if start:
        line = line[start:]
    if b"\r" not in line:
        return start, _apply_erasures(strip_frames(line))
    begin = _find_newest_start(line)
    return start + begin, _apply_erasures(strip_frames(line[begin:]).partition(b"\r")[0]).rstrip(b" ")


def render_lines(lines: bytes) -> bytes:
    """Return `lines` with only the newest state of each line."""
    if b"\r" not in lines and b"\b" not in lines and b"\x1b" not in lines:
        return lines
    return b"\n".join(find_newest_state(line)[1] for line in strip_frames(lines).split(b"\n"))


def _find_newest_row(line: bytes) -> int:
    """Return the offset behind the last code that moves the cursor up with text after it; 0 if there is none."""
    newest = begin = 0
    for up in CURSOR_UP.finditer(line):
        if _shows_text(line[begin : up.start()]):
            newest = begin
        begin = up.end()
    return begin if _shows_text(line[begin:]) else newest


def _shows_text(part: bytes) -> bool:
    return bool(_ESCAPE_CODE.sub(b"", strip_frames(part)).strip(b"\r"))


def _find_newest_start(line: bytes) -> int:
    r"""Return the offset at which the newest state begins. A carriage return with nothing after it replaces nothing:
    `print("10%", end="\\r")`."""
    end = len(line)
    while (at := line.rfind(b"\r", 0, end)) >= 0:
        if at + 1 < end and _ESCAPE_CODE.sub(b"", strip_frames(line[at + 1 : end])):
            return at + 1
        end = at
    return 0


def _apply_erasures(state: bytes) -> bytes:
    if b"\x1b[" in state:
        state = _ERASED_AFTER.sub(b"", _ERASED_BEFORE.split(state)[-1])
    return _apply_backspaces(state) if b"\b" in state else state


def _apply_backspaces(state: bytes) -> bytes:
    shown: list[str] = []
    at = 0
    for character in state.decode(errors="surrogateescape"):
        if character == "\b":
            at = max(0, at - 1)
        else:
            shown[at : at + 1] = character
            at += 1
    return "".join(shown).encode(errors="surrogateescape")
