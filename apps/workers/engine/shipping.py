"""Logs of ranks on other hosts, brought to where those of this machine lie. By offset: a piece that comes again, or in
part, or that another piece has overtaken, leaves the file as it should be."""

import fcntl
import os
from pathlib import Path

from django.conf import settings

from apps.common.errors import ApiError
from apps.workers.models import Order


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
    path = Path(settings.DATA_DIR, "logs", task, str(attempt), f"{rank}.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        if offset > size:
            raise Gap(size)
        file.write(data[size - offset :])
        file.flush()
        return os.fstat(file.fileno()).st_size
