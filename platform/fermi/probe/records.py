"""Writes records of what a script logs (values, parameters, files) into a queue that the rank's runner empties once a
second. Standard library only, Python 3.9 or later.

    add_record({"source": "wandb", "step": 10, "values": {"train/loss": 2.3}})

The queue is a file without a name that all Python processes of a rank append to, one line of JSON for each record; the
runner frees what it has read (`fermi.runner.records`). The platform checks records again (`fermi.metrics.records`).

A process writes its first MAX_FULL records at once. From then on it writes MAX_PER_SECOND: of the values of one source
and with the same names the newest are kept until their turn comes, or the process ends.

Nothing here raises, or waits for anything but a thread that is just writing.
"""

from __future__ import annotations

import _thread
import os
import time

TYPE_CHECKING = False  # `typing` and `json` are slow to import, and this is imported by every Python process of a rank
if TYPE_CHECKING:
    from typing import Any

RANK_VARIABLE = "FERMI_RANK"
"""The rank of the process that the runner started. A launcher inside of it gives its own processes other ranks."""
MAX_RECORD_BYTES = 3400
"""Of one line; larger records are split. A frame in the log has at most 3,500 bytes."""
MAX_NAMES = 1000
"""Values or parameters of one record."""
MAX_TEXT_LENGTH = 1000
MAX_FULL = 10_000
MAX_PER_SECOND = 10.0
MAX_WAITING = 100
"""Kinds of values that wait for their turn."""
MAX_QUEUE_BYTES = 4 << 20
"""Bytes that the runner has not read yet; more are left out."""
LOCK_TIMEOUT_SECONDS = 0.05

_ABOUT = ("source", "step", "time", "rank", "left_out")
"""What all parts of a record have that is split."""
_DIVISIBLE = ("values", "parameters")
_KEPT = ("parameters", "media", "checkpoint", "prompt", "notice", "facts")
"""Records with these are never replaced by newer ones."""


class RecordWriter:
    """Writes the records of this process to a descriptor that is open for append."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.reset()

    def reset(self) -> None:
        """Start to count; also in a forked child, whose parent writes what it has added."""
        self.lock = _thread.allocate_lock()
        self.written = self.left_out = 0
        self.allowed, self.allowed_at = MAX_PER_SECOND, 0.0
        self.waiting: dict[tuple[object, ...], dict[str, Any]] = {}

    def add_record(self, record: dict[str, Any]) -> None:
        """Write a record now, or keep it until its turn comes."""
        locked = self.lock.acquire(True, LOCK_TIMEOUT_SECONDS)  # a signal's handler may have interrupted it
        try:
            if self.written < MAX_FULL or not locked:
                self.written += 1
                self._write(record)
                return
            self._keep(record)
            now = time.monotonic()
            self.allowed = min(MAX_PER_SECOND, self.allowed + (now - self.allowed_at) * MAX_PER_SECOND)
            self.allowed_at = now
            while self.waiting and self.allowed >= 1.0:
                self.allowed -= 1.0
                self._write(self.waiting.pop(next(iter(self.waiting))))
        finally:
            if locked:
                self.lock.release()

    def _keep(self, record: dict[str, Any]) -> None:
        kind: tuple[object, ...] = (record.get("source"), *record.get("values", ()))
        if any(name in record for name in _KEPT):
            kind = (len(self.waiting), record["time"])
        if kind in self.waiting or len(self.waiting) >= MAX_WAITING:
            self.left_out += 1
        if kind in self.waiting or len(self.waiting) < MAX_WAITING:
            self.waiting[kind] = record

    def flush(self) -> None:
        """Write what waits."""
        waiting, self.waiting = self.waiting, {}
        for record in waiting.values():
            self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        if os.fstat(self.descriptor).st_blocks * 512 > MAX_QUEUE_BYTES:
            self.left_out += 1
            return
        if self.left_out:
            record = {**record, "left_out": self.left_out}
        for line in format_record(record):
            os.write(self.descriptor, line)  # one system call: lines of other processes do not come between


_writer: RecordWriter | None = None


def open_queue(descriptor: int) -> None:
    """Write records of this process to the descriptor from now on. Raises OSError."""
    global _writer
    os.fstat(descriptor)
    _writer = RecordWriter(descriptor)


def is_open() -> bool:
    """Return True if what this process records is written."""
    return _writer is not None


def add_record(record: dict[str, Any]) -> None:
    """Record what a script has logged: `source`, and what is known of `values`, `step`, `parameters`, `media`,
    `checkpoint`, `prompt`, `notice` and `facts`. Adds the `time` if it is missing, and the `rank` of this process if
    that is not the one that the runner started. Does nothing if the rank has no queue. Never raises."""
    try:
        if _writer is None:
            return
        record = dict(record)
        record.setdefault("time", round(time.time(), 3))
        own, started = os.environ.get("RANK", ""), os.environ.get(RANK_VARIABLE, "")
        if own != started and own.isdigit() and started:
            record.setdefault("rank", int(own))
        _writer.add_record(record)
    except Exception:
        pass


def flush() -> None:
    """Write the records that wait for their turn. Never raises."""
    try:
        if _writer is not None:
            _writer.flush()
    except Exception:
        pass


def forked() -> None:
    """Reset in a forked child. Never raises."""
    if _writer is not None:
        _writer.reset()


def media_folder() -> str:
    """Return the folder for images, tables and the like (`FERMI_OUTPUT_DIR/media`), which is created; "" if there is
    none. Never raises."""
    try:
        outputs = os.environ.get("FERMI_OUTPUT_DIR", "")
        if not outputs:
            return ""
        folder = os.path.join(outputs, "media")
        os.makedirs(folder, exist_ok=True)
        return folder
    except Exception:
        return ""


def format_record(record: dict[str, Any]) -> list[bytes]:
    """Return the record as lines of at most MAX_RECORD_BYTES, each a record by itself; nested names are joined with
    dots where that divides them. Values that are too long, and more than MAX_NAMES of them, are left out. Raises what
    `json.dumps` raises."""
    import json

    record = {name: _shorten(value) for name, value in record.items()}
    line = json.dumps(record, separators=(",", ":"), default=_simplify).encode() + b"\n"
    if len(line) <= MAX_RECORD_BYTES:
        return [line]
    lines: list[bytes] = []
    about = {name: record[name] for name in _ABOUT if name in record}
    for name in record.keys() - about.keys():
        content = record[name]
        if len(record) > len(about) + 1:
            lines += format_record({**about, name: content})
        elif name in _DIVISIBLE and isinstance(content, dict):
            items = list(content.items())
            while len(items) == 1 and isinstance(items[0][1], dict):
                items = [(f"{items[0][0]}.{inner}", value) for inner, value in items[0][1].items()]
            for part in (items[: len(items) // 2], items[len(items) // 2 :]) if len(items) > 1 else ():
                lines += format_record({**about, name: dict(part)})
    return lines


def _shorten(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT_LENGTH]
    if isinstance(value, dict):
        return {str(name)[:MAX_TEXT_LENGTH]: _shorten(inner) for name, inner in list(value.items())[:MAX_NAMES]}
    return value


def _simplify(value: Any) -> Any:
    """Return a number for scalars of NumPy and the like, a list for sequences, and a text for all else."""
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    try:
        return float(value)
    except Exception:
        return str(value)[:MAX_TEXT_LENGTH]
