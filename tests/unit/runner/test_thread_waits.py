"""What wakes a rank, what it waits for, and what of its output is progress."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

import pytest

from fermi.probe import setup
from fermi.probe.shared_page import MAGIC, SharedPage
from fermi.runner import activity, thread_waits
from fermi.runner.pulse import MAX_UNCOUNTED_SECONDS, ProgressReader, RankSample
from tests.polling import until

FOR_EVER, FOR_A_WHILE = "0x0", "0x7ffd1000"


@pytest.mark.parametrize(
    ("call", "locked", "timed"),
    [
        (f"202 0x1 0x189 0x0 {FOR_EVER} 0x0 0xffffffff 0x7 0x7", True, False),  # sem_wait, pthread_cond_wait
        (f"202 0x1 0x80 0x0 {FOR_EVER} 0x0 0x0 0x7 0x7", True, False),
        (f"202 0x1 0x189 0x0 {FOR_A_WHILE} 0x0 0xffffffff 0x7 0x7", False, True),
        (f"202 0x1 0x109 0x0 {FOR_EVER} 0x0 0xffffffff 0x7 0x7", False, False),  # another process can wake it
        ("232 0x5 0x7 0x40 0xffffffff 0x0 0x8 0x7 0x7", False, False),  # epoll_wait
        ("232 0x5 0x7 0x40 0xa 0x0 0x8 0x7 0x7", False, True),
        ("7 0x7 0x1 0xffffffffffffffff 0x0 0x0 0x0 0x7 0x7", False, False),  # poll
        ("230 0x0 0x0 0x7ffd 0x0 0x0 0x0 0x7 0x7", False, True),  # clock_nanosleep
        ("0 0x3 0x7ffd 0x400 0x0 0x0 0x0 0x7 0x7", False, False),  # read
        ("running", False, False),
        ("", False, False),
    ],
)
def test_a_wait_that_only_the_own_process_can_end_differs_from_a_timer(call: str, locked: bool, timed: bool) -> None:
    assert thread_waits.is_lock_wait(call.split(), "x86_64") is locked
    assert thread_waits.is_timed_wait(call.split(), "x86_64") is timed
    assert not thread_waits.is_lock_wait(call.split(), "riscv64"), "calls have other numbers there"


CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', {!r}], start_new_session=True)"
POLLS = "import time\nwhile True: time.sleep(0.2)"


@pytest.mark.parametrize(("script", "moves"), [(CHILD.format(POLLS), True), ("import os\nos.read(0, 1)", False)])
def test_activity_of_a_child_program_counts_for_its_rank(script: str, moves: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, start_new_session=True) as rank:

        def look() -> thread_waits.ThreadWaits:
            return thread_waits.read_waits(activity.measure_activity([rank.pid])[rank.pid].pids)

        try:
            if moves:
                until(lambda: len(activity.measure_activity([rank.pid])[rank.pid].pids) == 2, what="its program runs")
                first = look()
                until(lambda: look().wakes != first.wakes, what="it comes back from a wait")
            else:
                until(lambda: (first := look()) == look() and first.wakes is not None, what="it waits")
        finally:
            for pid in activity.measure_activity([rank.pid])[rank.pid].pids:
                os.kill(pid, signal.SIGKILL)


class Printed:
    """An Output."""

    def __init__(self) -> None:
        self.text = b""

    def size(self) -> int:
        return len(self.text)

    def tail(self) -> bytes:
        return self.text[-2048:]

    def append_frames(self, records: Iterable[bytes]) -> None: ...


def news(*printed: str) -> list[bool]:
    """Whether each is progress."""
    output, found = Printed(), []
    pulse = ProgressReader({"rank": 0, "pid": 0}, None, output)
    for now, text in enumerate(printed):
        before = pulse.samples[-1].printed if pulse.samples else 0
        output.text += text.encode()
        found.append(pulse.take_sample(float(now)).printed != before)
    return found


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        (["waiting\n", "waiting\n", "waiting\nwaiting\n"], [True, False, False]),
        (["step 1\n", "step 2\n"], [True, True]),
        (["try 1 of 3\n", "try 1 of 3\n", "try 2 of 3\n"], [True, False, True]),
        (["2026-11-26 12:00:01,250 busy\n", "2026-11-26 12:00:02,250 busy\n"], [True, False]),
        (["12:00:01 loss 0.5\n", "12:00:02 loss 0.4\n"], [True, True]),
        ([".", ".", "."], [True, True, True]),
        (["retry\n", "ret", "ry\n", "done"], [True, False, False, True]),
        (["\r 1%|#  |", "\r 2%|#  |"], [True, True]),
        (["a\nb\nc\n", "b\nc\na\n", "d\n"], [True, False, True]),
    ],
)
def test_a_repeated_line_is_no_progress_and_a_counting_one_is(lines: list[str], progress: list[bool]) -> None:
    assert news(*lines) == progress


def test_a_flood_of_one_line_is_no_progress() -> None:
    line = "x" * 40 + "\n"
    assert news(line, line * 500, line * 500) == [True, False, False]


def test_a_computing_rank_without_counted_collectives_waits_in_none() -> None:
    given = setup.create_rank_files()
    page = SharedPage(given.page)
    page.number("magic", MAGIC)
    page.number("begun", 3)
    for name in ("collective_at", "alive_at"):
        page.moment(name, 10.0)
    seen, late = page.read(), 10.0 + MAX_UNCOUNTED_SECONDS + 1
    given.close()
    assert RankSample(11.0, seen, state="R").waits
    assert RankSample(late, seen, state="S").waits
    assert not RankSample(late, seen, state="R").waits
