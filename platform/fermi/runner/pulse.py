"""Progress of one rank, sampled once a second: its probe page, its output, and its processes in /proc. Standard library
only, Python 3.9 or later. What cannot be read is unknown and raises nothing."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections import deque
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple, Protocol

from fermi.probe.reader import PageValues
from fermi.probe.setup import RankFiles
from fermi.probe.shared_page import SharedPage
from fermi.runner import pressure, processes, record_frames, stacks
from fermi.runner.activity import TICKS_PER_SECOND, read_stat
from fermi.runner.pressure import Pressure

WINDOW_SECONDS = 10.0
MIN_MAIN_CPU_SHARE, MIN_CPU_SHARE = 0.02, 0.05
"""Of a processor, by the main thread and by the whole process: less is what watchdogs and heartbeats use."""
FIGURES_PATTERN = re.compile(rb"(?i)\b(loss|step|iter|iteration|epoch|batch)\b\W{0,4}\d")
CLOCK_PATTERN = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?Z?")
"""A date or a time of day in a line."""
MAX_LINES = 64
"""Of a rank's last different lines: repeated output, such as a traceback in a loop, is within."""
TAIL_BYTES = 2048
MAX_UNCOUNTED_SECONDS = 5.0
"""So long after it last ran, the thread that counts collectives is not running (see `fermi.probe.collectives`)."""
MAX_UNANSWERED_SECONDS = 100.0
"""After so long a rank that has not answered is asked for its stacks again."""
STOPPED_STATES = ("T", "t")
"""States of a process that was stopped by a signal or a tracer (proc(5))."""


class RankOutput(Protocol):
    """The output of a rank: the number of bytes that it has printed, and the last of them, both without frames."""

    def size(self) -> int: ...

    def tail(self) -> bytes: ...

    def append_frames(self, records: Iterable[bytes]) -> None: ...


class RankSample(NamedTuple):
    """A rank at one moment (monotonic). `pid`: the process that reports for the rank. `printed`: samples in which it
    had printed something new. `seconds`, `main_seconds`: processor time of all its threads and of the main one."""

    at: float
    page: PageValues | None = None
    pid: int = 0
    printed: int = 0
    state: str = ""
    seconds: float = 0.0
    main_seconds: float = 0.0
    switches: int = 0
    rss: int | None = None
    pressure: Pressure = Pressure()

    @property
    def signs(self) -> tuple[object, ...]:
        """Values of which any change means progress."""
        page = self.page
        return (self.printed, *((page.pid, page.step, page.phase, page.begun, page.ended) if page else ()))

    def advanced_at(self, before: RankSample) -> float:
        """Return when it showed the newest sign of progress since the sample `before`."""
        if self.page is None or self.printed != before.printed:
            return self.at
        newest = max(self.page.stepped_at, self.page.phase_at, self.page.collective_at)
        return newest if before.at <= newest <= self.at else self.at

    @property
    def waits(self) -> bool:
        """Whether it is in a collective, since `page.collective_at`. Not if it computes while its collectives are not
        counted any more: its main thread holds the GIL in C, and the page is outdated."""
        page = self.page
        if page is None or not page.collective_at or page.begun <= page.ended:
            return False
        return not (self.state == "R" and page.alive_at and self.at - page.alive_at > MAX_UNCOUNTED_SECONDS)

    def collectives(self) -> tuple[int, int]:
        """Return how many collectives have begun, and how many have ended."""
        return (self.page.begun, self.page.ended) if self.page else (0, 0)

    def acts(self, before: RankSample) -> bool:
        """Return True if it has done anything since `before`. A rank that is in the same collective as then only
        spins."""
        if self.pid == before.pid and self.waits and self.collectives() == before.collectives():
            return False
        if self.pid != before.pid or self.state in ("R", "D"):
            return True
        passed = max(self.at - before.at, 1e-3)
        main, all_of_it = self.main_seconds - before.main_seconds, self.seconds - before.seconds
        return main / passed >= MIN_MAIN_CPU_SHARE or all_of_it / passed >= MIN_CPU_SHARE


class ProgressReader:
    """Samples the rank of one entry. `given`: the probe's files, or None. `started`: the entry of the rank whose
    process the runner has started, if that one starts this rank. `launcher`: the files of that process, which stands
    for its own rank until that has begun."""

    def __init__(
        self,
        entry: dict[str, Any],
        given: RankFiles | None,
        output: RankOutput,
        started: dict[str, Any] | None = None,
        launcher: RankFiles | None = None,
    ) -> None:
        self.entry, self._output = entry, output
        self.started = started or entry
        self.given: RankFiles | None = launcher or given
        self._next: RankFiles | None = given if launcher else None
        self.follows_launcher = launcher is not None
        self._page: SharedPage | None = None
        self._size = 0
        self.figures = 0  # looks at which figures had been printed
        self._news = 0
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self.printed_at: float | None = None
        self.samples: deque[RankSample] = deque()

    def page(self) -> PageValues | None:
        """Return the values of the probe page, or None if there are no valid ones."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            if self._next and SharedPage(self._next.page).read():
                self.given, self._next, self._page = self._next, None, None
            if self._page is None and self.given:
                self._page = SharedPage(self.given.page)
            seen = self._page.read() if self._page else None
            moments = (
                (seen.began, seen.stepped_at, seen.phase_at, seen.collective_at, seen.waited, seen.stepping)
                if seen
                else ()
            )
            return seen if all(map(math.isfinite, moments)) else None
        return None

    def request_stacks(self, now: float) -> None:
        """Request the rank's stacks; see `stacks.py`. A stopped rank answers once it goes on."""
        seen = self.page()
        if self._page is None or self.given is None or seen is None:
            return
        if seen.asked_at == seen.answered_at or now - seen.asked_at > MAX_UNANSWERED_SECONDS:
            stacks.request_stacks(self._page, self.given.stacks, now)
        elif self.samples and self.samples[-1].state not in STOPPED_STATES:
            stacks.signal_stack_writer(seen, self.started["pid"], self.given.stacks)

    @property
    def stands_for_launcher(self) -> bool:
        """Whether its page still is that of the launcher: its rank has not begun."""
        return self._next is not None

    def is_present(self, sample: RankSample) -> bool:
        """Return True if the rank has a process. A rank that a launcher starts may have none yet, or none any more."""
        if self._next or (self.started is self.entry and not self.follows_launcher):
            return True
        return bool(sample.pid and sample.page and sample.page.pid == sample.pid)

    def close(self) -> None:
        """Close the probe's files."""
        if self._page:
            self._page.map.close()
        for files in (self.given, self._next):
            if files:
                files.close()
        self._page = self.given = self._next = None

    def take_sample(self, now: float) -> RankSample:
        """Take and return a sample."""
        page = self.page()
        printed = self._printed(now, page)
        sample = self._process(RankSample(now, page, printed=printed))
        self.samples.append(sample)
        while len(self.samples) > 2 and now - self.samples[1].at >= WINDOW_SECONDS:
            self.samples.popleft()
        return sample

    def repeats(self, sample: RankSample) -> int:
        """Return the number of steps or, if none can be seen, of printed figures."""
        return (sample.page.step if sample.page else 0) or self.figures

    def _printed(self, now: float, page: PageValues | None) -> int:
        size = self._output.size()
        if size != self._size:
            tail, self.printed_at, grown, self._size = self._output.tail(), now, size - self._size, size
            if not self._repeats(tail, grown):
                self._news += 1
                if not (page and page.step) and FIGURES_PATTERN.search(tail):
                    self.figures += 1
        return self._news

    def _repeats(self, tail: bytes, grown: int) -> bool:
        """Return True if each line that was printed since the last sample equals an earlier one, except for the time in
        it. A line that counts something differs each time."""
        begin = tail.rfind(b"\n", 0, max(0, len(tail) - grown)) + 1
        torn = begin == 0 and grown >= len(tail) < self._size  # the first line began before the tail
        *whole, rest = tail[begin:].split(b"\n")
        lines = [CLOCK_PATTERN.sub(b"", line).strip() for line in (whole[1:] if torn else whole)]
        rest = CLOCK_PATTERN.sub(b"", rest).strip()
        known = all(line in self._lines for line in lines) and (
            not rest or any(line.startswith(rest) for line in self._lines)
        )
        self._lines.extend(line for line in dict.fromkeys(lines) if line not in self._lines)
        return known

    def _process(self, sample: RankSample) -> RankSample:
        leader = self.started["pid"]
        for pid in (sample.page.pid if sample.page else 0, leader if self.started is self.entry else 0):
            with contextlib.suppress(OSError, ValueError, IndexError, KeyError, OverflowError):
                if not pid or not processes.is_within(pid, leader):  # the rank can write any number into its page
                    continue
                fields, status = read_stat(f"/proc/{pid}/stat"), processes.read_status_fields(pid)
                return sample._replace(
                    pid=pid, state=fields[0].decode(), seconds=(int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND,
                    main_seconds=_read_main_seconds(pid), switches=int(status.get("voluntary_ctxt_switches", 0)),
                    rss=int(status["VmHWM"].split()[0]) << 10 if "VmHWM" in status else None,
                    pressure=pressure.read_pressure(pid),
                )  # fmt: skip
        return sample

    def record(self, unix: float) -> dict[str, Any] | None:
        """Return the fields of a `PulseSeen`, or None without samples. `unix`: what is added to a monotonic moment."""
        if not self.samples:
            return None
        first, last = self.samples[0], self.samples[-1]
        old, page, passed = first.page, last.page, last.at - first.at
        told: dict[str, Any] = {
            "rank": self.entry["rank"], "at": round(last.at + unix, 1), "rss_bytes": last.rss,
            "printed_at": round(self.printed_at + unix, 1) if self.printed_at else None,
            "cpu": round((last.seconds - first.seconds) / passed, 2) if passed > 0 and last.pid == first.pid else None,
        }  # fmt: skip
        if last.pid == first.pid:
            told.update(pressure.compute_shares(first.pressure, last.pressure, passed))
        if page is None:
            return told
        told.update(
            phase=page.phase, place=page.place or None, gpu_bytes=page.gpu_bytes or None, collectives=page.ended or None
        )
        if page.world_size:
            told["world_size"] = page.world_size
        if page.joined_as:
            told["joined_as"] = page.joined_as - 1
        if page.trainer:
            told["trainer"] = page.trainer
        if page.cpu_build:
            told["cpu_build"] = True
        if page.compiles:
            told.update(compiles=page.compiles, recompiled=page.recompiled, recompiled_at=page.recompiled_at,
                        compiling=round(page.compiling, 1), compiler=page.compiler or None)  # fmt: skip
        if page.step:
            told.update(step=page.step, stepped_at=round(page.stepped_at + unix, 1))
            told["step_seconds"] = _compute_step_seconds(old if old and old.pid == page.pid else None, page)
        if page.begun and old and old.pid == page.pid and passed > 0:
            told["waiting"] = round(min(1.0, max(0.0, _get_waited(last) - _get_waited(first)) / passed), 3)
        return told


def _compute_step_seconds(old: PageValues | None, page: PageValues) -> float | None:
    """Return the seconds per step within the window or, without two steps in it, over all."""
    steps, seconds = (page.step - old.step, page.stepping - old.stepping) if old else (0, 0.0)
    if not (steps and seconds > 0):
        steps, seconds = page.step - 1, page.stepping
    return round(seconds / steps, 4) if steps > 0 and seconds > 0 else None


def _get_waited(sample: RankSample) -> float:
    return sample.page.waited if sample.page else 0.0


class LogFile:
    """A RankOutput in a file."""

    def __init__(self, path: str) -> None:
        self.path, self.appended = path, 0

    def size(self) -> int:
        """Return the number of bytes that the rank has printed; 0 if the file cannot be read."""
        with contextlib.suppress(OSError):
            return os.stat(self.path).st_size - self.appended
        return 0

    def tail(self) -> bytes:
        """Return the last bytes that the rank has printed."""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            return record_frames.read_tail(lambda size: _read_last(file, size), TAIL_BYTES)
        return b""

    def append_frames(self, records: Iterable[bytes]) -> None:
        """Append records to the log, as frames. Raises OSError."""
        log = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(log).st_size
            own_line = not size or os.pread(log, 1, size - 1) == b"\n"
            self.appended += os.write(log, record_frames.format_frames(records, own_line=own_line))
        finally:
            os.close(log)


def _read_last(file: BinaryIO, size: int) -> bytes:
    file.seek(max(0, os.fstat(file.fileno()).st_size - size))
    return file.read(size)


def _read_main_seconds(pid: int) -> float:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9
    fields = read_stat(f"/proc/{pid}/task/{pid}/stat")
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
