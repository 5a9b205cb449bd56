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

from fermi.probe.reader import PageValues
from fermi.probe.shared_page import SharedPage
from fermi.runner import processes

MAX_BYTES = 1 << 18
MAX_FRAMES, MAX_TEXT_LENGTH = 16, 120
MAX_THREADS = 8
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+")
_FRAME = re.compile(r'\s+File "(.*)", line (\d+|\?\?\?) in (.*)')
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r".*/lib/python\d[\d.]*/")
_RUNNER_FOLDERS = re.compile(r".*/(?:fermi/(?:runner|probe)|_fermi_probe)/")
_STACK_WRITER = re.compile(r".*/(?:fermi/probe|_fermi_probe)/stack_writer\.py")
_SHUTDOWN_FRAME = re.compile(r"(?:destroy_process_group|_abort_process_group) \(torch/|shutdown \(horovod/")
"""Functions in which ranks shut down together."""
STACK_SIGNAL = signal.SIGURG
"""The signal that `fermi.probe.rank` handles."""


class StackFrame(NamedTuple):
    """A frame of a Python stack."""

    file: str
    line: int
    function: str

    def short(self, folder: str) -> str:
        """Return `function (file:line)`, with the path relative to `folder`."""
        return f"{self.function} ({_shorten_path(self.file, folder)}:{self.line})"[:MAX_TEXT_LENGTH]

    def is_own(self) -> bool:
        """Return True if it is of the user's code: neither a library's nor ours."""
        foreign = (_PACKAGES, _LIBRARY, _RUNNER_FOLDERS)
        return not self.file.startswith("<") and not any(pattern.match(self.file) for pattern in foreign)


def request_stacks(page: SharedPage, stacks: int, moment: float) -> None:
    """Request the stacks from the owner of the page; the answer is in the file `stacks` within
    `fermi.probe.stack_writer.PERIOD_SECONDS`."""
    with contextlib.suppress(OSError):
        os.ftruncate(stacks, 0)
        page.moment("asked_at", moment)


def signal_stack_writer(page: PageValues, session: int, stacks: int) -> bool:
    """Signal the thread that writes stacks if an earlier request was not answered because a thread holds the GIL.
    Return True if an answer may come."""
    try:
        if not page.answers or not processes.is_within(page.pid, session) or not _has_handler(page.pid):
            return False
        if not processes.read_wait_channel(page.pid, page.answers).startswith(
            "futex"
        ):  # it does not wait for the interpreter
            return False
        os.ftruncate(stacks, 0)
    except (OSError, OverflowError, ValueError):
        return False
    return processes.signal_thread(page.pid, page.answers, STACK_SIGNAL)


def read_stacks(stacks: int) -> list[list[StackFrame]]:
    """Return each thread's frames, innermost first, the main thread first; empty if there is no (new) answer."""
    with contextlib.suppress(OSError):
        return parse_threads(os.pread(stacks, MAX_BYTES, 0).decode(errors="replace"))
    return []


def parse_threads(text: str) -> list[list[StackFrame]]:
    """Return each thread's frames of a faulthandler dump. It has the newest thread first; threads of `threading` begin
    in `_bootstrap`."""
    found: list[list[StackFrame]] = []
    for line in text.replace("\0", "").splitlines():
        if _THREAD.match(line):
            found.append([])
        elif found and (match := _FRAME.match(line)):
            file, number, function = match.groups()
            found[-1].append(StackFrame(file, int(number) if number.isdigit() else 0, function))
    found = [frames for frames in found if not (frames and _STACK_WRITER.match(frames[-1].file))]
    main = next((frames for frames in reversed(found) if frames and frames[-1].function != "_bootstrap"), None)
    return [main, *(frames for frames in found if frames is not main)] if main else []


def list_thread_places(threads: Iterable[list[StackFrame]], folder: str) -> list[str]:
    """Return where the script's own threads are: those with lines of the user's code, each with the innermost of
    these."""
    return [
        place for frames in threads if (place := find_own_line(frames, folder)) and any(map(StackFrame.is_own, frames))
    ][:MAX_THREADS]


def format_frames(frames: list[StackFrame], folder: str) -> list[str]:
    """Return the frames as text, without those that start a script."""
    shown = [frame for frame in frames if not (_RUNNER_FOLDERS.match(frame.file) or frame.file == "<frozen runpy>")]
    return [frame.short(folder) for frame in shown[:MAX_FRAMES]]


def find_own_line(frames: list[StackFrame], folder: str) -> str:
    """Return the innermost line of the user's code, such as `data.py:88 in load_batch`."""
    of_command = [frame for frame in frames if frame.file in ("<string>", "<stdin>")]  # also what libraries generate
    for frame in [*filter(StackFrame.is_own, frames), *of_command]:
        return f"{_shorten_path(frame.file, folder)}:{frame.line} in {frame.function}"[:MAX_TEXT_LENGTH]
    return ""


def has_shutdown_frame(frames: Iterable[str]) -> bool:
    """Return True if one of these frames, as `format_frames` returns them, is in a shutdown function."""
    return any(_SHUTDOWN_FRAME.match(frame) for frame in frames)


def is_hanging_in_shutdown(stalled: Mapping[str, Any] | None) -> bool:
    """Return True if a rank's entry shows that it hangs while shutting down: it has done its work, or has failed."""
    if not stalled or not stalled.get("still"):
        return False
    return stalled.get("phase") == "ending" or has_shutdown_frame(stalled.get("stack") or ())


def _shorten_path(file: str, folder: str) -> str:
    for pattern in (_PACKAGES, _LIBRARY):
        if found := pattern.match(file):
            return file[found.end() :]
    inside = folder.rstrip("/") + "/"
    return file[len(inside) :] if file.startswith(inside) else os.path.basename(file)


def _has_handler(pid: int) -> bool:
    mask = processes.read_status_fields(pid).get("SigCgt", "0")
    return bool(int(mask, 16) >> (STACK_SIGNAL - 1) & 1)
