"""Kill a pass at one of its lines, as `kill -9` would, inside of the process of the test."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from django.db import connection

ROOT = Path(__file__).parents[1]


class KilledError(BaseException):
    """What a kill -9 leaves: nothing cleans up but the database."""


def run_until_killed(run: Callable[[], object], files: tuple[str, ...], line: int) -> int:
    """Run a pass that is killed when the `line`-th line of these files (of the repository) begins, unless that is 0.
    Return how many of their lines it came to."""
    assert all((ROOT / name).is_file() for name in files)
    count = 0

    def trace_lines(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == line:
                sys.settrace(None)
                raise KilledError
        return trace_lines

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return trace_lines if frame.f_code.co_filename.endswith(files) else None

    before = sys.gettrace()
    with roll_back_when_killed():
        sys.settrace(trace)
        try:
            run()
        finally:
            sys.settrace(before)
    return count


@contextmanager
def roll_back_when_killed() -> Iterator[None]:
    """End at the kill the transactions that the block has begun, as a database does when a process is gone: at the last
    line of a `with transaction.atomic()` a process is killed before Django has left the block."""
    open_before = len(connection.savepoint_ids)
    try:
        yield
    except KilledError:
        while len(connection.savepoint_ids) > open_before:
            connection.atomic_blocks.pop()
            if savepoint := connection.savepoint_ids.pop():
                connection.savepoint_rollback(savepoint)
