"""Writes records into the logs of ranks: those that processes of a rank have added (`fermi.probe.records`), and the
runner's own. Standard library only, Python 3.9 or later.

    queue of a rank ── once a second, and when the rank has ended ──▶ frames (`record_frames.py`) in its log

The platform reads logs exactly once and in order, whatever the engine, and takes the frames out.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from fermi.runner import log_rotation, record_frames
from fermi.runner.activity import Activity, measure_activity
from fermi.runner.prompts import PromptDetector
from fermi.runner.pulse import RankOutput

PERIOD_SECONDS = 1.0
MAX_READ_BYTES = 512 << 10
"""Bytes of a queue that are read at a time."""
MAX_READS_AT_END = 16
"""The queue of an ended rank holds 4 MiB and what was added while it was full."""
MIN_RELEASED_BYTES = 64 << 10


class RecordQueue:
    """What processes of a rank have added. `descriptor`: of the queue."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.offset = self.released = 0

    def read(self) -> list[bytes]:
        """Return the next records, not validated, and release the space of what was read. Raises OSError."""
        data = os.pread(self.descriptor, MAX_READ_BYTES, self.offset)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == MAX_READ_BYTES:  # no record
            whole = len(data)
        self.offset += whole
        if self.offset - self.released >= MIN_RELEASED_BYTES:
            log_rotation.release_blocks(self.descriptor, self.offset)
            self.released = self.offset
        return data[:whole].split(b"\n")[:-1]


class RankRecords:
    """The records of all ranks of a node. Nothing here raises: what cannot be read or written is left out."""

    def __init__(self) -> None:
        self._outputs: dict[int, RankOutput] = {}
        self._queues: dict[int, RecordQueue] = {}
        self._prompts: dict[int, PromptDetector] = {}
        self._due = time.monotonic() + PERIOD_SECONDS

    def add(self, rank: int, output: RankOutput, queue: int | None, session: int) -> None:
        """Write the records of a rank that was started. `queue`: a descriptor, which stays the caller's; `session`: the
        process that leads the rank's, or its launcher's."""
        self._outputs[rank] = output
        self._prompts[rank] = PromptDetector(output, time.monotonic(), lambda: _measure_seconds(session))
        if queue is not None:
            self._queues[rank] = RecordQueue(queue)

    def append_record(self, rank: int, record: Mapping[str, Any]) -> bool:
        """Append a record of the runner to the log of a rank. Adds the `time` if it is missing. Return False if it was
        left out: the rank was not started here, or the record is longer than a frame."""
        record = {"source": "runner", **record}
        record.setdefault("time", round(time.time(), 3))
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            text = json.dumps(record, separators=(",", ":")).encode()
            if rank in self._outputs and record_frames.is_valid_record(text):
                self._outputs[rank].append_frames([text])
                return True
        return False

    def update(self) -> None:
        """Move the records that there are into the logs, and look for questions in these, if that is due. Call it
        several times a second."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + PERIOD_SECONDS
            for rank in self._queues:
                self._move(rank)
            for rank, detector in self._prompts.items():
                if prompt := detector.update(now):
                    self.append_record(rank, {"prompt": prompt})

    def finish_rank(self, rank: int) -> None:
        """Move the last records of a rank that has ended. Its queue may be closed afterwards."""
        self._prompts.pop(rank, None)
        if rank in self._queues:
            for _ in range(MAX_READS_AT_END):
                if not self._move(rank):
                    break
            del self._queues[rank]

    def _move(self, rank: int) -> bool:
        with contextlib.suppress(OSError):
            if records := self._queues[rank].read():
                self._outputs[rank].append_frames(records)
                return True
        return False


def _measure_seconds(session: int) -> float:
    return measure_activity([session]).get(session, Activity()).seconds
