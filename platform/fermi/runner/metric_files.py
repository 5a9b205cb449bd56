"""Follows files of metrics that a training script writes: reads what was added, and what it says. Standard library
only, Python 3.9 or later.

    events.out.tfevents.*        TensorBoard's scalars (`event_files`)
    trainer_state.json           `log_history` of Transformers' Trainer (trainer_callback.py, `TrainerState`)
    metrics.csv, results.csv, …  rows with a column of steps or epochs: Lightning's CSVLogger writes step and epoch
                                 (lightning/fabric/loggers/csv_logs.py), Ultralytics epoch
    metrics.jsonl, …             one object per line with a step, iteration or epoch; MMEngine's scalars.json and
                                 Detectron2's metrics.json are such files, too

A table without a column of steps or epochs is no curve: its file is left alone. What was written before the attempt
began is not reported. A file that is written anew is read from its beginning, and as many rows as were read are passed
over; if it has become shorter, it is another training, and nothing is.

The name of a value is that in the file. Only where two folders have the same name, and for folders called train, val
and the like (TensorBoard's runs), the folder's name stands before it: `val/loss`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from fermi.runner.checkpoint_layouts import TRAINER_STATE, read_json
from fermi.runner.event_files import EventFormatError, EventReader
from fermi.runner.folder_walk import Entry, FolderWalk, Listing

MAX_FILES = 200
MAX_SCAN_BYTES = 2 << 20
"""Read by one scan of all files together; the rest follows with the next one."""
CHUNK_BYTES = 256 << 10
MAX_LINE_BYTES = 64 << 10
MAX_OLD_BYTES = 4 << 20
"""Of a table that was there before: the rows of a larger one are not counted."""
MAX_SCAN_RECORDS = 500
DENSE_RECORDS, SPARSE_SCAN_RECORDS = 10_000, 20
"""Of a file: so many records are all reported; from then on so many of each scan, among them the newest."""
MAX_NAME_LENGTH, MAX_NAMES = 200, 2000
KEPT_POINTS = 200
"""Of each name, to recognise what another file has as well."""
MAX_VALUES_BYTES, VALUE_BYTES = 3000, 26
"""Of the values of one record, which has to fit into a frame of the log (`record_frames`); and of one number."""
STEP_NAMES = (
    "step", "global_step", "steps", "iter", "iteration", "iterations", "it", "num_updates", "update", "updates",
    "total_timesteps", "timesteps", "timestep", "train_step", "env_steps",
)  # fmt: skip
EPOCH_NAMES = ("epoch", "epochs")
TIME_NAMES = frozenset(("time", "timestamp", "wall_time", "created_at", "date", "datetime"))
LEFT_OUT = frozenset(("total_flos",))
SPLIT_NAMES = frozenset(("train", "training", "val", "valid", "validation", "eval", "test", "dev"))
CSV_NAMES = frozenset(
    ("metrics.csv", "results.csv", "progress.csv", "log.csv", "training.csv", "training_log.csv", "history.csv")
)
LINES_NAMES = frozenset(
    ("metrics.jsonl", "results.jsonl", "log.jsonl", "logs.jsonl", "train_log.jsonl", "training_log.jsonl",
     "train.jsonl", "history.jsonl", "metrics.json", "scalars.json")
)  # fmt: skip
EVENTS_MARK = "events.out.tfevents."
_CHECKPOINT_FOLDER = re.compile(r"checkpoint-\d+$")

Row = tuple[int, dict[str, float], "float | None"]
"""The step, the values, and the time in unix seconds, if the file has it."""


class MetricFile:
    """A file that is followed. `unit`: the folder whose values are one set of curves."""

    def __init__(self, path: str, unit: str) -> None:
        self.path, self.unit = path, unit
        self.offset = self.inode = 0
        self.seen: Entry | None = None  # the file as it was when it was read to its end
        self.rows = self.skipped = self.given = 0  # read; not to be reported again; records that were reported
        self.start = b""
        self.is_dead = False

    def begin_behind(self, entry: Entry, file: BinaryIO) -> None:
        """Pass over what was there before the attempt. Raises OSError."""
        self.inode, self.offset, self.seen = entry.inode, entry.size, entry

    def is_due(self, entry: Entry) -> bool:
        """Return True if there may be something new in it."""
        return not self.is_dead and entry != self.seen

    def read(self, entry: Entry, file: BinaryIO, most: int) -> tuple[list[Row], int]:
        """Return the new rows, and how many bytes were read, at most `most`. Raises OSError."""
        raise NotImplementedError


class EventFile(MetricFile):
    """An event file of TensorBoard: it only grows."""

    def __init__(self, path: str, unit: str) -> None:
        super().__init__(path, unit)
        self.reader = EventReader()

    def is_due(self, entry: Entry) -> bool:
        return not self.is_dead and entry.size > self.offset

    def read(self, entry: Entry, file: BinaryIO, most: int) -> tuple[list[Row], int]:
        file.seek(self.offset)
        data = file.read(min(most, CHUNK_BYTES * 2))
        found: dict[tuple[int, int], Row] = {}
        turns: dict[tuple[int, str], int] = {}  # how often a name has been there at a step
        try:
            events, used, passed = self.reader.split_records(data)
            self.offset += used + passed
            for event in events:
                for one in self.reader.read_scalars(event):
                    if not math.isfinite(one.value):
                        continue
                    turn = turns[one.step, one.tag] = turns.get((one.step, one.tag), -1) + 1
                    row = found.setdefault((one.step, turn), (one.step, {}, one.time))
                    row[1][one.tag] = one.value
        except EventFormatError:
            self.is_dead = True
        return list(found.values()), len(data)


class TableFile(MetricFile):
    """A file of rows, one per line."""

    def begin_behind(self, entry: Entry, file: BinaryIO) -> None:
        super().begin_behind(entry, file)
        data = file.read(MAX_OLD_BYTES) if entry.size <= MAX_OLD_BYTES else file.read(MAX_LINE_BYTES)
        self.start = data[:MAX_LINE_BYTES].partition(b"\n")[0]
        self.offset = data.rfind(b"\n") + 1 if entry.size <= MAX_OLD_BYTES else entry.size
        self.rows = data.count(b"\n") - self.header_lines
        self.read_header(self.start)

    header_lines = 0

    def read_header(self, line: bytes) -> None:
        """Take the first line in."""

    def read_row(self, line: bytes) -> Row | None:
        """Return the row of a line; None where it has no step or no values."""
        raise NotImplementedError

    def read(self, entry: Entry, file: BinaryIO, most: int) -> tuple[list[Row], int]:
        start = file.read(MAX_LINE_BYTES).partition(b"\n")[0]
        if entry.size < self.offset:
            self.offset = self.rows = self.skipped = 0
        elif start != self.start or (entry.inode != self.inode and self.inode):
            self.offset, self.skipped, self.rows = 0, self.rows, 0
        self.start, self.inode = start, entry.inode
        file.seek(self.offset)
        data = file.read(min(most, CHUNK_BYTES))
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) >= MAX_LINE_BYTES:
            self.is_dead = True  # no table has such lines
            return [], len(data)
        found, lines = [], data[:whole].split(b"\n")[:-1]
        if self.offset == 0 and self.header_lines and lines:
            self.read_header(lines.pop(0))
        if self.offset + len(data) >= entry.size:
            self.seen = entry
        self.offset += whole
        for line in lines:
            self.rows += 1
            if self.rows > self.skipped and (row := self.read_row(line)):
                found.append(row)
        return found, len(data)


class CsvFile(TableFile):
    """A table with a line of names."""

    header_lines = 1

    def __init__(self, path: str, unit: str) -> None:
        super().__init__(path, unit)
        self.columns: list[str] = []

    def read_header(self, line: bytes) -> None:
        self.columns = [name.strip() for name in _split_csv(line)]
        if not any(_last_part(name) in (*STEP_NAMES, *EPOCH_NAMES) for name in self.columns):
            self.is_dead = True

    def read_row(self, line: bytes) -> Row | None:
        cells = _split_csv(line)
        if len(cells) != len(self.columns):
            return None
        values = {name: number for name, cell in zip(self.columns, cells) if (number := _read_number(cell)) is not None}  # noqa: B905
        return build_row(values)


class LinesFile(TableFile):
    """One JSON object per line."""

    def read_row(self, line: bytes) -> Row | None:
        if not line.startswith(b"{"):
            return None
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return build_row(flatten_numbers(said)) if isinstance(said, dict) else None


class TrainerStateFile(MetricFile):
    """`trainer_state.json`, which each checkpoint has with the whole history. `known`: what other files of the same
    training have reported, by step and names; `old`: entries that were there before."""

    def __init__(self, path: str, unit: str, known: set[tuple[int, frozenset[str]]], old: set[str]) -> None:
        super().__init__(path, unit)
        self.known, self.old = known, old

    def begin_behind(self, entry: Entry, file: BinaryIO) -> None:
        super().begin_behind(entry, file)
        self.old.update(json.dumps(one, sort_keys=True) for one in self._read_history(file))

    def _read_history(self, file: BinaryIO) -> list[dict[str, Any]]:
        state = read_json(lambda _: file, self.path) or {}
        history = state.get("log_history")
        return [one for one in history if isinstance(one, dict)] if isinstance(history, list) else []

    def read(self, entry: Entry, file: BinaryIO, most: int) -> tuple[list[Row], int]:
        found = []
        history = self._read_history(file)
        if history:  # else it is being written
            self.inode, self.offset, self.seen = entry.inode, entry.size, entry
        for one in history:
            row = build_row(flatten_numbers(one))
            if row is None or json.dumps(one, sort_keys=True) in self.old:
                continue
            key = row[0], frozenset(row[1])
            if key not in self.known:
                self.known.add(key)
                found.append(row)
        return found, entry.size


class MetricScan:
    """Follows all files of metrics below the walk's folders. `began_at`: when the ranks were started, unix seconds."""

    def __init__(self, walk: FolderWalk, began_at: float) -> None:
        self._walk, self._began_at = walk, began_at
        self._files: dict[str, MetricFile] = {}
        self._histories: dict[str, tuple[set[tuple[int, frozenset[str]]], set[str]]] = {}
        self._owners: dict[str, str] = {}  # by simplified name: the first unit that has such a value
        self._names: dict[tuple[str, str], str] = {}  # by unit and name in the file; empty: not reported
        self._seen: set[tuple[str, str]] = set()  # units and names in the file, at most MAX_NAMES
        self._points: dict[str, dict[int, float]] = {}  # by simplified name: the newest points
        self._is_first = True

    def read_new(self, listing: Listing) -> list[dict[str, Any]]:
        """Return the records of what was added since the scan before."""
        entries = {path: entry for path, entry in sorted(_find_files(listing)) if entry.size}
        for path, entry in entries.items():
            if path not in self._files and len(self._files) < MAX_FILES:
                self._add(path, entry)
        self._is_first = False
        found: list[dict[str, Any]] = []
        left = MAX_SCAN_BYTES
        due = [path for path in self._files if path in entries]
        while due and left > 0 and len(found) < MAX_SCAN_RECORDS:
            again = []
            for path in due:
                one = self._files[path]
                before = one.offset
                records, used = self._read(one, entries[path], left)
                found, left = found + records, left - used
                if one.offset != before and one.is_due(entries[path]):
                    again.append(path)
            due = again
        return found

    def _add(self, path: str, entry: Entry) -> None:
        one = self._files[path] = self._make(path)
        if self._is_first and entry.changed / 1e9 < self._began_at:
            try:
                with self._walk.open_file(path) as file:
                    one.begin_behind(entry, file)
            except OSError:
                one.is_dead = True

    def _make(self, path: str) -> MetricFile:
        folder, _, name = path.rpartition("/")
        if EVENTS_MARK in name:
            return EventFile(path, folder)
        if name == TRAINER_STATE:
            unit = folder.rpartition("/")[0] if _CHECKPOINT_FOLDER.search(folder) else folder
            return TrainerStateFile(path, unit, *self._histories.setdefault(unit, (set(), set())))
        return CsvFile(path, folder) if name in CSV_NAMES else LinesFile(path, folder)

    def _read(self, one: MetricFile, entry: Entry, most: int) -> tuple[list[dict[str, Any]], int]:
        if not one.is_due(entry):
            return [], 0
        try:
            with self._walk.open_file(one.path) as file:
                rows, used = one.read(entry, file, most)
        except OSError:  # deleted meanwhile, or not for this process to read
            return [], 0
        dense = max(0, DENSE_RECORDS - one.given)
        rows, rest = rows[:dense], rows[dense:]
        if len(rest) > SPARSE_SCAN_RECORDS:
            each = math.ceil(len(rest) / SPARSE_SCAN_RECORDS)
            rest = rest[-1::-each][::-1]
        rows += rest
        records = [record for row in rows for record in self._build_records(one, row)]
        one.given += len(records)
        return records, used

    def _build_records(self, one: MetricFile, row: Row) -> Iterator[dict[str, Any]]:
        step, values, time = row
        named = [(name, value) for tag, value in values.items() if (name := self._name(one.unit, tag, step, value))]
        if all(_last_part(name) in EPOCH_NAMES for name, _ in named):
            return
        about: dict[str, Any] = {"source": "file", "step": step, **({"time": round(time, 3)} if time else {})}
        values, size = {}, 0
        for name, value in named:
            size += len(json.dumps(name)) + VALUE_BYTES
            if values and size > MAX_VALUES_BYTES:
                yield {**about, "values": values}
                values, size = {}, len(json.dumps(name)) + VALUE_BYTES
            values[name] = value
        if values:
            yield {**about, "values": values}

    def _name(self, unit: str, tag: str, step: int, value: float) -> str:
        """Return the name of a value, which may have its folder's name before it; empty for one too many, and for what
        another file has as well (a script with two loggers)."""
        tag, leaf = tag[:MAX_NAME_LENGTH], unit.rpartition("/")[2]
        if tag in EPOCH_NAMES:
            return tag
        if self._counts_too_many(unit, tag):
            return ""
        if leaf.lower() in SPLIT_NAMES and re.split(r"[/._\- ]", tag.lower(), maxsplit=1)[0] not in SPLIT_NAMES:
            return f"{leaf}/{tag}"
        if leaf.startswith(f"{tag.replace('/', '_')}_"):
            return f"{tag}/{leaf[len(tag) + 1 :]}"  # `SummaryWriter.add_scalars` of torch/utils/tensorboard/writer.py
        if (unit, tag) in self._names:
            name = self._names[unit, tag]
        else:
            name = self._names[unit, tag] = self._choose_name(unit, tag, step, value)
        if name == tag:
            points = self._points.setdefault(simplify_name(tag), {})
            points[step] = value
            if len(points) > KEPT_POINTS:
                del points[next(iter(points))]
        return name

    def _counts_too_many(self, unit: str, tag: str) -> bool:
        """Return whether a value is one more than MAX_NAMES."""
        if (unit, tag) not in self._seen and len(self._seen) < MAX_NAMES:
            self._seen.add((unit, tag))
        return (unit, tag) not in self._seen

    def _choose_name(self, unit: str, tag: str, step: int, value: float) -> str:
        if self._owners.setdefault(simplify_name(tag), unit) != unit:
            same = self._points.get(simplify_name(tag), {}).get(step)
            if same is not None and math.isclose(same, value, rel_tol=1e-5):
                return ""
        root = next((top for top in self._walk.roots if f"{unit}/".startswith(f"{top}/")), "")
        names = (tag, f"{unit.rpartition('/')[2]}/{tag}", f"{unit[len(root) + 1 :]}/{tag}")
        taken = {name: other for (other, _), name in self._names.items() if name}
        return next((name for name in names if taken.get(name, unit) == unit), "")


def simplify_name(name: str) -> str:
    """Return what is the same of names that two loggers give one value: `train/loss` and `loss`."""
    return re.sub(r"[/.\- ]", "_", name.lower()).removeprefix("train_")


def build_row(values: Mapping[str, float]) -> Row | None:
    """Return the row of values by name, among which are a step or an epoch; None where neither is, or nothing else."""
    by_part = {_last_part(name): name for name in reversed(list(values))}
    counter = next((by_part[name] for name in (*STEP_NAMES, *EPOCH_NAMES) if name in by_part), None)
    if counter is None or not 0 <= values[counter] < 1 << 53:
        return None
    time = next((values[name] for name in values if name.lower() in TIME_NAMES and 1e9 < values[name] < 1e11), None)
    left_out = LEFT_OUT | TIME_NAMES | {counter if _last_part(counter) not in EPOCH_NAMES else ""}
    kept = {name: value for name, value in values.items() if name not in left_out and name.lower() not in left_out}
    if not kept.keys() - set(EPOCH_NAMES):
        return None
    return int(values[counter]), kept, time


def flatten_numbers(said: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the finite numbers of an object, and of objects in it by `outer/inner`, at most two levels."""
    found: dict[str, float] = {}
    for name, value in list(said.items())[:MAX_NAMES]:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if abs(value) < 1 << 1000 and math.isfinite(value):
                found[f"{prefix}{name}"] = value
        elif isinstance(value, dict) and not prefix:
            found.update(flatten_numbers(value, f"{name}/"))
    return found


def _find_files(listing: Listing) -> Iterable[tuple[str, Entry]]:
    for folder, entries in listing.items():
        for name, entry in entries.items():
            if entry.is_folder:
                continue
            if name == TRAINER_STATE or name in CSV_NAMES or name in LINES_NAMES or EVENTS_MARK in name:
                yield f"{folder}/{name}", entry


def _split_csv(line: bytes) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(line.decode(errors="replace").strip("\r\ufeff"))), [])
    except csv.Error:
        return []


def _last_part(name: str) -> str:
    return name.lower().rpartition("/")[2].strip()


def _read_number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
