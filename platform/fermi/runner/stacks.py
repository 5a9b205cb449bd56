"""Requests and reads the Python stacks of a rank's threads: requested by a moment in its page, written by a thread of
the probe (`fermi.probe.stack_writer`). Standard library only, Python 3.9 or later.

The script is not interrupted. Only if there was no answer since an earlier request, because a thread holds the GIL in
C, that one thread of the probe is sent a signal; never a process that has no handler for it, nor one outside of the
rank's session: the page names the process, and the rank can write anything there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fermi.probe.reader import Seen
from fermi.probe.shared_page import Page
from fermi.runner import processes

MOST_BYTES = 1 << 18
MOST_FRAMES, MOST_TEXT = 16, 120
MOST_THREADS = 8
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+")
_FRAME = re.compile(r'\s+File "(.*)", line (\d+|\?\?\?) in (.*)')
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r".*/lib/python\d[\d.]*/")
_OURS = re.compile(r".*/(?:fermi/(?:runner|probe)|_fermi_probe)/")
_ANSWERS = re.compile(r".*/(?:fermi/probe|_fermi_probe)/answer\.py")
_LEAVE = re.compile(r"(?:destroy_process_group|_abort_process_group) \(torch/|shutdown \(horovod/")
"""Functions in which ranks shut down together."""
SIGNAL = signal.SIGURG
"""The signal that `fermi.probe.rank` handles."""


class Frame(NamedTuple):
    """A frame of a Python stack."""

    file: str
    line: int
    function: str

    def short(self, folder: str) -> str:
        """Return `function (file:line)`, with the path relative to `folder`."""
        return f"{self.function} ({_short(self.file, folder)}:{self.line})"[:MOST_TEXT]

    def is_own(self) -> bool:
        """Return True if it is of the user's code: neither a library's nor ours."""
        foreign = (_PACKAGES, _LIBRARY, _OURS)
        return not self.file.startswith("<") and not any(pattern.match(self.file) for pattern in foreign)


def ask(page: Page, stacks: int, moment: float) -> None:
    """Request the stacks from the owner of the page; the answer is in the file `stacks` within
    `fermi.probe.stack_writer.PERIOD_SECONDS`."""
    with contextlib.suppress(OSError):
        os.ftruncate(stacks, 0)
        page.moment("asked_at", moment)


def insist(seen: Seen, session: int, stacks: int) -> bool:
    """Signal the thread that writes stacks if an earlier request was not answered because a thread holds the GIL.
    Return True if an answer may come."""
    try:
        if not seen.answers or os.getsid(seen.pid) != session or not _catches(seen.pid):
            return False
        if not processes.channel(seen.pid, seen.answers).startswith("futex"):  # it does not wait for the interpreter
            return False
        os.ftruncate(stacks, 0)
    except (OSError, OverflowError, ValueError):
        return False
    return processes.signal_thread(seen.pid, seen.answers, SIGNAL)


def read(stacks: int) -> list[list[Frame]]:
    """Return each thread's frames, innermost first, the main thread first; empty if there is no (new) answer."""
    with contextlib.suppress(OSError):
        return threads(os.pread(stacks, MOST_BYTES, 0).decode(errors="replace"))
    return []


def threads(text: str) -> list[list[Frame]]:
    """Return each thread's frames of a faulthandler dump. It has the newest thread first; threads of `threading` begin
    in `_bootstrap`."""
    found: list[list[Frame]] = []
    for line in text.replace("\0", "").splitlines():
        if _THREAD.match(line):
            found.append([])
        elif found and (match := _FRAME.match(line)):
            file, number, function = match.groups()
            found[-1].append(Frame(file, int(number) if number.isdigit() else 0, function))
    found = [frames for frames in found if not (frames and _ANSWERS.match(frames[-1].file))]
    main = next((frames for frames in reversed(found) if frames and frames[-1].function != "_bootstrap"), None)
    return [main, *(frames for frames in found if frames is not main)] if main else []


def beside(others: Iterable[list[Frame]], folder: str) -> list[str]:
    """Return where the script's own threads are: those with lines of the user's code, each with the innermost of
    these."""
    return [place for frames in others if (place := own(frames, folder)) and any(map(Frame.is_own, frames))][
        :MOST_THREADS
    ]


def short(frames: list[Frame], folder: str) -> list[str]:
    """Return the frames as text, without those that start a script."""
    shown = [frame for frame in frames if not (_OURS.match(frame.file) or frame.file == "<frozen runpy>")]
    return [frame.short(folder) for frame in shown[:MOST_FRAMES]]


def own(frames: list[Frame], folder: str) -> str:
    """Return the innermost line of the user's code, such as `data.py:88 in load_batch`."""
    of_command = [frame for frame in frames if frame.file in ("<string>", "<stdin>")]  # also what libraries generate
    for frame in [*filter(Frame.is_own, frames), *of_command]:
        return f"{_short(frame.file, folder)}:{frame.line} in {frame.function}"[:MOST_TEXT]
    return ""


def take_leave(shown: Iterable[str]) -> bool:
    """Return True if one of these frames, as `format_frames` returns them, is in a shutdown function."""
    return any(_LEAVE.match(frame) for frame in shown)


def leaves(stalled: Mapping[str, Any] | None) -> bool:
    """Return True if a rank's entry shows that it hangs while shutting down: it has done its work, or has failed."""
    if not stalled or not stalled.get("still"):
        return False
    return stalled.get("phase") == "ending" or take_leave(stalled.get("stack") or ())


def _short(file: str, folder: str) -> str:
    for pattern in (_PACKAGES, _LIBRARY):
        if found := pattern.match(file):
            return file[found.end() :]
    inside = folder.rstrip("/") + "/"
    return file[len(inside) :] if file.startswith(inside) else os.path.basename(file)


def _catches(pid: int) -> bool:
    mask = processes.status(pid).get("SigCgt", "0")
    return bool(int(mask, 16) >> (SIGNAL - 1) & 1)
