"""Ctrl-C while a task is watched."""

from collections.abc import Iterator
from contextlib import contextmanager

from fermi.cli import output
from fermi.cli.texts import _


@contextmanager
def leaving(task_id: str, *, following: bool = True) -> Iterator[None]:
    """Says that the task goes on, how to see it again and how to stop it."""
    try:
        yield
    except KeyboardInterrupt:
        if following:
            output.say("")
            output.say(_("TASK_GOES_ON", id=task_id))
        raise
