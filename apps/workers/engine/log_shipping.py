"""Logs of ranks on other hosts, brought to where those of this machine lie. By offset: a piece that comes again, or in
part, or that another piece has overtaken, leaves the file as it should be."""

import fcntl
import os
from pathlib import Path

from django.conf import settings

from apps.common.errors import ApiError
from apps.workers.models import HostRun, Order
from fermi.engines import logfiles
from fermi.engines.agent.environments import log_path
from fermi.engines.environments import HostedHandle

LONGEST = 1 << 40
"""Bytes that a dev environment's log may have come to."""


class Gap(Exception):
    """The piece begins behind the end of what is there."""

    def __init__(self, acknowledged: int) -> None:
        super().__init__(acknowledged)
        self.acknowledged = acknowledged


def append(worker_id: str, task: str, attempt: int, rank: int, offset: int, data: bytes) -> int:
    """How many bytes of that log are here now. Raises Gap."""
    theirs = Order.objects.filter(launch__task=task, launch__attempt=attempt, worker=worker_id, rank=rank)
    if not theirs.exists():
        raise ApiError(404, "RANK_NOT_OF_WORKER", worker=worker_id, task=task, attempt=attempt, rank=rank)
    return _append(Path(settings.DATA_DIR, "logs", task, str(attempt), f"{rank}.log"), offset, data)


def append_hosted(worker_id: str, run: str, offset: int, data: bytes) -> int:
    """The same of what a dev environment's keeper and service print, of which both sides keep the newest part: what its
    host has not any more is a hole here, too."""
    row = HostRun.objects.filter(pk=run, worker=worker_id).first()
    if row is None:
        raise ApiError(404, "RUN_NOT_OF_WORKER", worker=worker_id, run=run)
    return _append(
        log_path(Path(settings.DATA_DIR), HostedHandle(row.environment, row.number)), offset, data, trimmed=True
    )


def _append(path: Path, offset: int, data: bytes, *, trimmed: bool = False) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        if offset > size:
            if not trimmed or offset > LONGEST:
                raise Gap(size)
            file.truncate(offset)
            size = offset
        file.write(data[size - offset :])
        file.flush()
        if trimmed:
            logfiles.trim(file)
        return os.fstat(file.fileno()).st_size
