"""Ships ranks' logs to the server, by offset. Only the server's answer counts: it accepts data beyond what it has, and
returns how much that is now. So a request may break off anywhere, be repeated, or meet a server that has less than it
had, or more: the file there is a prefix of the one here, and in the end the same."""

import logging
from collections.abc import Callable
from contextlib import suppress

from fermi.agent.runs import RankRun
from fermi.client import FermiError, ForbiddenError, NotFoundError

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 19

AppendLog = Callable[[str, int, bytes], int]
"""`(log, offset, data) -> bytes that the server has`; raises FermiError."""


def ship_log(run: RankRun, append: AppendLog) -> None:
    """Send all that there is now. Raises FermiError when the server cannot accept it; the next call goes on from
    there."""
    if run.shipped:
        return
    over = run.is_over  # before the length: what is written later belongs to a later call
    if run.log is None or not run.log.exists():
        if over:
            run.mark_shipped()
        return
    try:
        if run.acknowledged is None:
            run.acknowledged = append(run.log_name, run.log.stat().st_size, b"")
        _send_chunks(run, append)
    except (NotFoundError, ForbiddenError) as error:
        if run.is_over:  # its task was deleted
            log.warning("the log of %s rank %s is not wanted any more: %s", run.name, run.rank, error.message)
            run.mark_shipped()
            return
        raise
    if over and run.acknowledged >= run.log.stat().st_size:
        run.mark_shipped()


def _send_chunks(run: RankRun, append: AppendLog) -> None:
    assert run.log is not None
    assert run.acknowledged is not None
    with open(run.log, "rb") as file:
        while True:
            file.seek(run.acknowledged)
            data = file.read(CHUNK_BYTES)
            if not data:
                return
            before = run.acknowledged
            run.acknowledged = append(run.log_name, before, data)
            if run.acknowledged == before:
                raise FermiError(f"the server took nothing of {len(data)} bytes", code="LOG_NOT_TAKEN")


def ship_logs(runs: list[RankRun], append: AppendLog) -> FermiError | None:
    """Send each log as far as possible, and return the last failure. One refused log does not delay the others."""
    failure = None
    for run in runs:
        with suppress(FileNotFoundError):  # removed meanwhile
            try:
                ship_log(run, append)
            except FermiError as error:
                failure = error
    return failure
