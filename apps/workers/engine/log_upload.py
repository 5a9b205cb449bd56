"""Stores logs of ranks on other hosts where those of this machine are. By offset: a piece that is repeated, or in part,
or that comes out of order, leaves the file as it should be."""

import fcntl
import os
from pathlib import Path

from django.conf import settings

from apps.common.errors import ApiError
from apps.workers.models import HostRun, Order
from fermi.engines import logfiles
from fermi.engines.agent.environments import build_log_path
from fermi.engines.environments import EnvironmentHandle

MAX_LOG_BYTES = 1 << 40
"""Largest offset of a dev environment's log, in bytes."""


class OffsetGapError(Exception):
    """The piece begins after the end of what is stored."""

    def __init__(self, acknowledged: int) -> None:
        super().__init__(acknowledged)
        self.acknowledged = acknowledged


def append_rank_log(worker_id: str, task: str, attempt: int, rank: int, offset: int, data: bytes) -> int:
    """Store a piece of a rank's log. Returns how many bytes are stored now. Raises OffsetGapError, and ApiError 404."""
    theirs = Order.objects.filter(launch__task=task, launch__attempt=attempt, worker=worker_id, rank=rank)
    if not theirs.exists():
        raise ApiError(404, "RANK_NOT_OF_WORKER", worker=worker_id, task=task, attempt=attempt, rank=rank)
    return _append_at(Path(settings.DATA_DIR, "logs", task, str(attempt), f"{rank}.log"), offset, data)


def append_run_log(worker_id: str, run: str, offset: int, data: bytes) -> int:
    """Store a piece of the log of a dev environment's run, of which both sides keep the newest part only: what its host
    no longer has is a hole here, too. Returns how many bytes are stored now."""
    row = HostRun.objects.filter(pk=run, worker=worker_id).first()
    if row is None:
        raise ApiError(404, "RUN_NOT_OF_WORKER", worker=worker_id, run=run)
    return _append_at(
        build_log_path(Path(settings.DATA_DIR), EnvironmentHandle(row.environment, row.number)),
        offset,
        data,
        trimmed=True,
    )


def _append_at(path: Path, offset: int, data: bytes, *, trimmed: bool = False) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        if offset > size:
            if not trimmed or offset > MAX_LOG_BYTES:
                raise OffsetGapError(size)
            file.truncate(offset)
            size = offset
        file.write(data[size - offset :])
        file.flush()
        if trimmed:
            logfiles.trim_log(file)
        return os.fstat(file.fileno()).st_size
