"""The stacks of the only rank of a task's node, asked for as its runner asks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench import procfs
from fermi.probe.shared_page import SharedPage
from fermi.runner import stacks
from tests.gpu.context import Context


@contextmanager
def files_of(runner: int) -> Iterator[tuple[SharedPage, int]]:
    """The page and the file for stacks of the only rank of a runner, which nobody else can open by a name."""
    opened = {}
    for name in os.listdir(f"/proc/{runner}/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/{runner}/fd/{name}")
            for kind in ("page", "stacks"):
                if target.startswith(f"/memfd:fermi-{kind}"):
                    opened[kind] = os.open(f"/proc/{runner}/fd/{name}", os.O_RDWR)
    assert len(opened) == 2, f"the runner {runner} has {opened} of a rank's two files"
    try:
        yield SharedPage(opened["page"]), opened["stacks"]
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def request_stacks(page: SharedPage, file: int, seconds: float) -> float:
    """Requests a rank's stacks, waits for the answer at most `seconds`, and returns how many seconds that took."""
    moment = time.monotonic()
    stacks.request_stacks(page, file, moment)
    while page.at("answered_at") != moment and time.monotonic() < moment + seconds:
        time.sleep(0.01)
    return time.monotonic() - moment


def print_stacks(context: Context, task_id: str, seconds: float = 1.0) -> None:
    """Prints where the rank is, or why that cannot be said. Never raises."""
    try:
        runner = procfs.read_parent(context.pid(task_id))
        with files_of(runner) as (page, file):
            request_stacks(page, file, seconds)
            print("stacks |", os.pread(file, 1 << 16, 0).decode(errors="replace")[:6000], flush=True)
    except Exception as error:
        print("stacks | none:", repr(error)[:300], flush=True)
