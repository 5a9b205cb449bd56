"""Writes measurements into blocks. Each process that receives measurements has one `TelemetryWriter`.

    put ─▶ the values of the present 15 seconds ─▶ the open block, in memory ─▶ flush: a row, from time to time

A process that dies loses what was not written: with few subjects a quarter of a minute, with a thousand a minute at
most. Coarser resolutions are made from these blocks alone (`rollups`).
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol
from zlib import crc32

import orjson
from django.db import DatabaseError, close_old_connections, connection, transaction

from apps.common.clock import now
from apps.telemetry import block_store
from apps.telemetry.block_codec import ColumnBlock, sum_counters
from apps.telemetry.resolutions import FINE, MAX_EARLY_SECONDS, MAX_LATE_SECONDS
from fermi.telemetry.aggregation import aggregate_values

log = logging.getLogger(__name__)

WRITES_PER_SECOND = 20
MIN_WRITE_SECONDS, MAX_WRITE_SECONDS = FINE.seconds, 60.0
"""Seconds between two writes of a subject: such that all of them together stay below `WRITES_PER_SECOND`."""
FLUSH_SECONDS, RETRY_SECONDS = 1.0, 10.0
MAX_BLOCKS_PER_TRANSACTION = 100
"""Blocks that one transaction writes."""


class _OpenBlock:
    """A block of a subject in memory. `slot`: the newest 15 seconds, of which `said` has all values by key: new values
    are combined with them, and values of the subject's other nodes stay. `version` None: not known yet whether there is
    a row."""

    def __init__(self, subject: str, begins: int) -> None:
        self.subject, self.begins = subject, begins
        self.values = ColumnBlock(FINE.values)
        self.version: int | None = None
        self.slot, self.said = -1, dict[str, list[float]]()
        self.dirty, self.due = False, 0.0
        self.newest: tuple[float, dict[str, float]] = (0.0, {})

    def put(self, at: float, values: Mapping[str, float], *, emulated: bool) -> None:
        slot = int(at - self.begins) // FINE.seconds
        if slot != self.slot:
            self.slot, self.said = slot, {}
        newest = self._newest(at)
        for key, value in values.items():
            several = self.said.setdefault(key, [])
            several.append(value)
            told = value if len(several) == 1 else aggregate_values(key, several)
            self.values.column(key)[slot] = told
            if newest is not None:
                newest[key] = told
        self.values.emulated = self.values.emulated or emulated
        self.dirty = True

    def _newest(self, at: float) -> dict[str, float] | None:
        """Return where present values are stored, or None if `at` is too old. Values of the subject's other nodes
        within 15 seconds are kept."""
        before, values = self.newest
        if at < before - FINE.seconds:
            return None
        if at - before >= FINE.seconds:
            values = {}
        self.newest = max(at, before), values
        return values

    def copied(self) -> tuple[ColumnBlock, bytes]:
        columns = {key: column.copy() for key, column in self.values.columns.items()}
        at, values = self.newest
        copy = ColumnBlock(FINE.values, columns, emulated=self.values.emulated)
        told = {"at": at, "values": values, "emulated": copy.emulated, "counted": sum_counters(copy)}
        return copy, orjson.dumps(told)


class TelemetryWriter:
    """Collects measurements and writes them. `clock`: returns unix seconds."""

    def __init__(self, clock: Callable[[], float] = lambda: now().timestamp()) -> None:
        self._clock = clock
        self._open: dict[tuple[str, int], _OpenBlock] = {}
        self._guard = threading.Lock()

    def put(self, subject: str, at: float, values: Mapping[str, float], *, emulated: bool = False) -> None:
        """Add values by key, measured at `at` (unix seconds). Values that are too old or in the future, and values
        beyond a float32, are dropped."""
        moment = self._clock()
        if not moment - MAX_LATE_SECONDS <= at <= moment + MAX_EARLY_SECONDS or not values:
            return
        key = subject, FINE.find_block_start(at)
        with self._guard:
            block = self._open.get(key)
            if block is None:
                block = self._open[key] = _OpenBlock(*key)
                block.due = moment + MIN_WRITE_SECONDS * (crc32(subject.encode()) % 16) / 16
            block.put(at, {name: value for name, value in values.items() if abs(value) < 3e38}, emulated=emulated)

    def flush(self, *, all_of_it: bool = False) -> int:
        """Write what is due, or all that is not written. Returns the number of blocks. Call it about once a second, in
        one thread."""
        moment = self._clock()
        with self._guard:
            due = [block for block in self._open.values() if block.dirty and (all_of_it or moment >= block.due)]
            due = sorted(due, key=lambda block: (block.subject, block.begins))[
                : None if all_of_it else MAX_BLOCKS_PER_TRANSACTION * 4
            ]
            pause = min(MAX_WRITE_SECONDS, max(MIN_WRITE_SECONDS, len(self._open) / WRITES_PER_SECOND))
        written = 0
        for at in range(0, len(due), MAX_BLOCKS_PER_TRANSACTION):
            written += self._write(due[at : at + MAX_BLOCKS_PER_TRANSACTION], moment + pause)
        with self._guard:
            over = [
                key for key, block in self._open.items()
                if not block.dirty and key[1] + FINE.block + MAX_LATE_SECONDS < moment
            ]  # fmt: skip
            for key in over:
                del self._open[key]
        return written

    def _write(self, blocks: list[_OpenBlock], due: float) -> int:
        written = 0
        try:
            with transaction.atomic():
                for block in blocks:
                    with self._guard:
                        block.dirty, block.due = False, due
                        copied, newest = block.copied()
                    version = self._known(block, copied)
                    try:
                        block.version = block_store.save_block(
                            FINE, block.subject, block.begins, copied, version, newest
                        )
                    except block_store.ConcurrentWriteError as error:
                        log.warning("telemetry is written by another process, too: %s", error)
                        block.dirty, block.version = True, None
                        continue
                    written += 1
        except DatabaseError:
            for block in blocks:
                block.dirty, block.version = True, None  # what was rolled back is not there
            raise
        return written

    def _known(self, block: _OpenBlock, copied: ColumnBlock) -> int:
        """Return the version to write over; values that were written before this process started are merged in."""
        if block.version is not None:
            return block.version
        there = block_store.load_block(FINE, block.subject, block.begins)
        if there is None:
            return 0
        copied.fill(there.values)
        with self._guard:
            block.values.fill(there.values)
        return there.version


class FlushableWriter(Protocol):
    """A `TelemetryWriter`, or an object that has one."""

    def flush(self, *, all_of_it: bool = False) -> int: ...


def run_writer(writer: FlushableWriter, ending: threading.Event) -> None:
    """Flush the writer until `ending` is set, in a thread of its own, so that adding values never waits for the
    database. The rest is written at the end."""
    while not ending.wait(FLUSH_SECONDS):
        try:
            close_old_connections()
            writer.flush()
        except Exception:
            log.exception("telemetry is not written; again in %s s", RETRY_SECONDS)
            connection.close_if_unusable_or_obsolete()
            ending.wait(RETRY_SECONDS)
    try:
        writer.flush(all_of_it=True)
    except DatabaseError as error:
        log.warning("the last of telemetry is not written: %s", error)
    connection.close()
