"""Download of files that the ranks of a node have written inside of an environment, into the task's folders of the
platform.

    checkpoints/<task>/…, trees/<task>/code/…, outputs/<task>/…    each file once it is complete, with its time inside
    <one of these folders' parents>/.arriving/<task>-<key>         a partial file
    logs/<task>/<attempt>/files-<k>.json                           what node k has (`DownloadRecord`)

The environment lists its files (`fermi.inside.output_files`), and they are requested piece by piece: the amount that
comes is bounded by what was requested, and a line of a log or a status waits for `MAX_PENDING_PIECES` pieces at most. A
file that exists here with the listed size and time is not requested. A download that was cut off is continued. A file's
SHA-256 is requested at the end and compared.

The environment is under its user's control. Paths lead nowhere but below the three folders (`fermi.engines.safe_tree`);
their number, depth and length are bounded, and so is the amount that a task may download.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fermi.engines.carried_logs import AttemptFiles
from fermi.engines.safe_tree import SafeTree
from fermi.inside.output_files import KINDS, MAX_DEPTH, MAX_FILES, MAX_PATH, MAX_PIECE_BYTES
from fermi.jobs.spec import Handle, Problem
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, OUTPUTS_FOLDER, TREE_FOLDER, TREES_FOLDER
from fermi.runner import files as plain_files
from fermi.runner.run_names import parse_run_name
from fermi.schema import humanize

MAX_PENDING_PIECES = 4
"""Pieces that are requested at the same time."""
MAX_NAME_BYTES = 255
"""Bytes of a file's name on Linux."""
MAX_FILE_BYTES = 1 << 50
MAX_TRIES = 3
"""Attempts to download a file that the environment lists and does not send."""
MAX_LEFT_OUT = 20
"""Files that are listed as left out, for each node."""
SYNC_BYTES = 16 << 20
MIN_FREE_BYTES = 1 << 30
"""Space that stays free on the platform's disk."""
PARTIAL_FOLDER = ".arriving"
GIB = 1 << 30
DEFAULT_FOLDER_BYTES, DEFAULT_TASK_BYTES, DEFAULT_DATA_BYTES = 20 * GIB, 100 * GIB, 10 * GIB
FileStamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Limits in bytes: of one folder (a checkpoint), of what all nodes of a task download, and of what a task reads of
    the platform's data, which is uploaded. As the connection has them (`apps.clusters.selectors`)."""

    folder: int = DEFAULT_FOLDER_BYTES
    task: int = DEFAULT_TASK_BYTES
    data: int = DEFAULT_DATA_BYTES

    @classmethod
    def from_connection(cls, connection: Mapping[str, Any]) -> TransferLimits:
        """Return the limits of a connection, with defaults for those that it does not set."""
        said = connection.get("carried") or {}
        return cls(**{name: int(said[name]) for name in ("folder", "task", "data") if said.get(name)})


@dataclass(slots=True)
class DownloadRecord:
    """Files that a node has reported. `rows`: by path, size, time (ns; size -1: it may still be written) and whether
    the platform had sent it. `final`: its ranks had ended; `more`: there were more files than a list may have. `bytes`:
    size of what is downloaded; `left_out`: {"code", "path", "size", "limit"} of what is not."""

    rows: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    final: bool = False
    more: bool = False
    bytes: int = 0
    left_out: list[dict[str, Any]] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write the record, atomically."""
        said = {"rows": self.rows, "final": self.final, "more": self.more, "bytes": self.bytes,
                "left_out": self.left_out}  # fmt: skip
        plain_files.write_bytes_atomically(str(path), json.dumps(said).encode(), 0o640)


def read_record(path: Path) -> DownloadRecord:
    """Return the record in a file; an empty one where there is none."""
    said = plain_files.read_json(str(path)) or {}
    rows = {name: (row[0], row[1], row[2]) for name, row in (said.get("rows") or {}).items()}
    found = said.get("left_out") or []
    return DownloadRecord(rows, bool(said.get("final")), bool(said.get("more")), int(said.get("bytes") or 0), found)


def build_record_path(data_dir: Path, attempt: str, node_rank: int) -> Path:
    """Return the file of a node's record."""
    return AttemptFiles(data_dir, *parse_run_name(attempt)).folder / f"files-{node_rank}.json"


def iterate_records(data_dir: Path, task_id: str, attempt: int | str = "*") -> Iterator[DownloadRecord]:
    """Yield the records of a task, the newest attempt first, of each attempt node 0 first."""
    found = (data_dir / "logs" / task_id).glob(f"{attempt}/files-*.json")
    for path in sorted(found, key=lambda path: (-_parse_number(path.parent.name), _parse_node_rank(path))):
        yield read_record(path)


def _parse_node_rank(record: Path) -> int:
    return _parse_number(record.stem.removeprefix("files-"))


def _parse_number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def build_task_trees(data_dir: Path, task_id: str) -> dict[str, SafeTree]:
    """Return the task's folders here, by kind."""
    return {
        "checkpoints": SafeTree(data_dir / CHECKPOINTS_FOLDER / task_id),
        "code": SafeTree(data_dir / TREES_FOLDER / task_id / TREE_FOLDER),
        "outputs": SafeTree(data_dir / OUTPUTS_FOLDER / task_id),
    }


def list_left_out(data_dir: Path, handle: Handle) -> list[Problem]:
    """Return the files of an attempt's nodes that are not downloaded, with the reason; the first `MAX_LEFT_OUT`."""
    found = list[Problem]()
    for path in sorted(AttemptFiles(data_dir, handle.task_id, handle.attempt).folder.glob("files-*.json")):
        for one in read_record(path).left_out:
            about = {
                "nodeRank": _parse_node_rank(path),
                "path": one["path"],
                "size": humanize.format_bytes(one["size"]),
                "limit": humanize.format_bytes(one["limit"]),
            }
            found.append(Problem("", one["code"], {**about, "why": str(one.get("why") or "")}))
    return found[:MAX_LEFT_OUT]


def check_checkpoint_complete(data_dir: Path, path: str) -> list[Problem]:
    """Return a problem where not all of a checkpoint has been downloaded."""
    if not path or is_checkpoint_complete(data_dir, path):
        return []
    return [Problem("resumeFrom", "RESUME_INCOMPLETE", {"path": path})]


def is_checkpoint_complete(data_dir: Path, path: str) -> bool:
    """Return whether all files of a task's checkpoint have been downloaded, as far as nodes have reported them."""
    for kind, top, below in (
        ("checkpoints", CHECKPOINTS_FOLDER, ""),
        ("code", TREES_FOLDER, f"{TREE_FOLDER}/"),
        ("outputs", OUTPUTS_FOLDER, ""),
    ):
        folder = f"{data_dir / top}/"
        if not path.startswith(folder):
            continue
        task_id, _, rest = path.removeprefix(folder).partition("/")
        named, own = f"{kind}/{rest.removeprefix(below)}", build_task_trees(data_dir, task_id)[kind]
        known = dict[str, tuple[int, int, bool]]()
        for record in iterate_records(data_dir, task_id):
            for name, row in record.rows.items():
                if not row[2] and (name == named or name.startswith(f"{named}/")):
                    known.setdefault(name, row)
        return all(_read_stamp(own, name.partition("/")[2]) == row[:2] for name, row in known.items())
    return True


def has_missing_files(data_dir: Path, attempt: str) -> bool:
    """Return whether a file that nodes of the attempt before this one have reported is missing here: they may still
    have it."""
    task_id, number = parse_run_name(attempt)
    own = build_task_trees(data_dir, task_id)
    for record in iterate_records(data_dir, task_id, _parse_number(number) - 1):
        for name, row in record.rows.items():
            kind, _, rest = name.partition("/")
            if not row[2] and kind != "outputs" and _read_stamp(own[kind], rest) != row[:2]:
                return True
    return False


def _read_stamp(tree: SafeTree, path: str) -> FileStamp | None:
    try:
        found = tree.get_entry(path)
    except OSError:
        return None
    return None if found.folder else (found.size, found.mtime_ns)


def _parse_rows(data: Any) -> dict[str, tuple[int, int, bool]]:
    """Return the rows that have the shape which `fermi.inside` writes; others count as not reported."""
    found = dict[str, tuple[int, int, bool]]()
    for row in data[:MAX_FILES] if isinstance(data, list) else ():
        if isinstance(row, list) and len(row) == 4 and is_valid_path(row[0]):
            path, size, mtime, given = row
            if _is_number(size, -1, MAX_FILE_BYTES) and _is_number(mtime, 0, 1 << 63):
                found[path] = (size, mtime, given is True)
    return found


def is_valid_path(path: Any) -> bool:
    """Return whether a value is a kind and a path below that kind's folder."""
    if not isinstance(path, str) or "\0" in path:
        return False
    kind, *parts = path.split("/")
    try:
        lengths = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return False
    return (
        kind in KINDS
        and 0 < len(parts) <= MAX_DEPTH + 1
        and sum(lengths) + len(parts) <= MAX_PATH + 1
        and all(0 < length <= MAX_NAME_BYTES for length in lengths)
        and not any(part in (".", "..", PARTIAL_FOLDER) for part in parts)
    )


def _is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < high


@dataclass(slots=True)
class _IncomingFile:
    """File that is being downloaded. `part`: an open file, which has the first `have` bytes; `requested`: up to where
    it was requested; `hashed`: bytes of it that went into `sum`; `synced`: bytes that are on the disk."""

    path: str
    size: int
    mtime: int
    part: int
    name: Path
    have: int
    requested: int
    hashed: int = 0
    synced: int = 0
    sum: Any = field(default_factory=hashlib.sha256)
    awaits_digest: bool = False


class NodeDownload:
    """Download of one node's files. Only `process_list` raises OSError; a file that cannot be written is left out."""

    def __init__(self, data_dir: Path, attempt: str, node_rank: int, limits: TransferLimits) -> None:
        self._data_dir, self._limits = data_dir, limits
        self._attempt, self._node_rank = attempt, node_rank
        self._task_id, self._number = parse_run_name(attempt)
        self._trees = build_task_trees(data_dir, self._task_id)
        self._path = build_record_path(data_dir, attempt, node_rank)
        self.record = read_record(self._path)
        self._here = {
            f"{kind}/{one.path}": one.size
            for kind, tree in self._trees.items()
            for one in tree.walk()
            if not one.folder
        }
        """What was here of the task when the stream began: it counts, too."""
        self._listed = False
        self._wanted: list[str] = []
        self._file: _IncomingFile | None = None
        self._in_flight: dict[int, tuple[_IncomingFile, str, int]] = {}
        self._tries: dict[tuple[str, FileStamp], int] = {}

    @property
    def is_done(self) -> bool:
        """Whether all files of ended ranks have been downloaded, or are left out."""
        return self._listed and self.record.final and not self._wanted and self._file is None

    @property
    def is_idle(self) -> bool:
        """Whether no file is wanted or on its way now."""
        return not self._wanted and self._file is None

    @property
    def percent(self) -> int:
        """Share of the bytes to download that is here."""
        left = sum(self.record.rows[path][0] for path in self._wanted)
        left += self._file.size - self._file.have if self._file else 0
        return 100 - 100 * left // max(self.record.bytes, left, 1)

    def cut(self) -> None:
        """Forget what was requested, because the stream has ended; the next one starts with a list."""
        self._in_flight.clear()
        self._listed = False
        self._drop()

    def discard(self) -> None:
        """Remove partial files, because nothing more comes."""
        self._drop()
        for top in (CHECKPOINTS_FOLDER, TREES_FOLDER, OUTPUTS_FOLDER):
            for part in (self._data_dir / top / PARTIAL_FOLDER).glob(f"{self._task_id}-{self._node_rank}-*"):
                part.unlink(missing_ok=True)

    # lists of files

    def process_list(self, message: Mapping[str, Any]) -> bool:
        """Process the list of files that the node has now; where the environment lost the attempt, nothing is known of
        them. Return whether what is left out has changed. Raise OSError."""
        before, is_known = self.record, message.get("files") is not None
        rows = _parse_rows(message["files"]) if is_known else before.rows
        found = DownloadRecord(rows, final=message.get("final") is True, more=message.get("more") is True)
        others = self._others()
        if is_known:
            self._remove(rows, others, more=found.more)
        if self._file and rows.get(self._file.path, (0, 0, True))[:2] != (self._file.size, self._file.mtime):
            self._drop()
        self._choose(found, others)
        if not is_known:
            self._wanted = []
        if found != before:
            found.save(self._path)
        self.record, self._listed = found, True
        return found.left_out != before.left_out

    def _others(self) -> dict[int, DownloadRecord]:
        """Return the records of the attempt's other nodes, by node rank."""
        found = dict[int, DownloadRecord]()
        for path in self._path.parent.glob("files-*.json"):
            node_rank = _parse_node_rank(path)
            if node_rank != self._node_rank:
                found[node_rank] = read_record(path)
        return found

    def _remove(self, rows: Mapping[str, Any], others: Mapping[int, DownloadRecord], *, more: bool) -> None:
        """Delete files here that the ranks have removed, if they are what the ranks had. Where nothing at all is left
        of a kind, the environment was emptied, and here is the only copy."""
        left = {path.partition("/")[0] for path in rows} - {"outputs"}
        for path, (size, mtime, _) in self.record.rows.items():
            kind, _, rest = path.partition("/")
            if more or path in rows or kind not in left or not _is_unclaimed(path, others):
                continue
            if _read_stamp(self._trees[kind], rest) == (size, mtime):
                self._trees[kind].delete(rest)
                self._here.pop(path, None)

    def _choose(self, record: DownloadRecord, others: Mapping[int, DownloadRecord]) -> None:
        """Choose the files to download, the newest folder first. Of a file that several nodes have, the first node
        sends it."""
        folders = dict[str, list[str]]()
        before = [record.rows for node_rank, record in others.items() if node_rank < self._node_rank]
        for path, (size, _, given) in record.rows.items():
            if size >= 0 and not given and not any(path in rows and not rows[path][2] for rows in before):
                folders.setdefault(_find_limited_folder(path), []).append(path)
        listed = [record.rows, *(record.rows for record in others.values())]
        total = sum(record.bytes for record in others.values()) + sum(
            size for path, size in self._here.items() if not any(path in rows and not rows[path][2] for rows in listed)
        )
        left_out, self._wanted = list[dict[str, Any]](), []
        for folder, paths in sorted(folders.items(), key=lambda one: -max(record.rows[path][1] for path in one[1])):
            size = sum(record.rows[path][0] for path in paths)
            if size > self._limits.folder:
                left_out.append(_build_left_out("INSIDE_FILES_TOO_LARGE", folder, size, self._limits.folder))
            elif total + size > self._limits.task:
                left_out.append(_build_left_out("INSIDE_FILES_OVER_LIMIT", folder, size, self._limits.task))
            else:
                total, record.bytes = total + size, record.bytes + size
                self._wanted += [path for path in sorted(paths) if self._is_wanted(path, record.rows[path][:2])]
        if record.more:
            left_out.append(_build_left_out("INSIDE_FILES_TOO_MANY", "", 0, 0))
        failed = [one for one in self.record.left_out if self._has_failed(one, record)]
        record.left_out = [*left_out, *failed][:MAX_LEFT_OUT]

    def _has_failed(self, failure: Mapping[str, Any], record: DownloadRecord) -> bool:
        """Return whether a file that could not be downloaded is unchanged since."""
        row = record.rows.get(failure["path"])
        if row is None or failure["code"] != "INSIDE_FILES_FAILED":
            return False
        return self._tries.get((failure["path"], row[:2]), 0) >= MAX_TRIES

    def _is_wanted(self, path: str, stamp: FileStamp) -> bool:
        if self._tries.get((path, stamp), 0) >= MAX_TRIES or (self._file and self._file.path == path):
            return False
        kind, _, rest = path.partition("/")
        return _read_stamp(self._trees[kind], rest) != stamp

    # pieces of files

    def request_files(self, tell: Callable[..., int]) -> None:
        """Request as much as may be on its way. `tell`: sends a request (`InsideSession.send`), and may raise
        OSError."""
        while len(self._in_flight) < MAX_PENDING_PIECES:
            if self._file is None and not self._begin():
                return
            one = self._file
            if one is None:
                continue
            about = {"of": self._attempt, "path": one.path, "size": one.size, "mtime": one.mtime}
            if one.requested < one.size or (one.size == 0 and not one.awaits_digest):
                number = tell("read", **about, at=one.requested, most=MAX_PIECE_BYTES)
                self._in_flight[number] = one, "read", one.requested
                one.requested = min(one.size, one.requested + MAX_PIECE_BYTES)
                one.awaits_digest = one.size == 0
            elif one.have == one.size > MAX_PIECE_BYTES and not one.awaits_digest:
                one.awaits_digest = True
                self._in_flight[tell("digest", **about)] = one, "digest", 0
                return
            else:
                return

    def _begin(self) -> bool:
        while self._wanted:
            path = self._wanted.pop(0)
            size, mtime, _ = self.record.rows[path]
            try:
                if shutil.disk_usage(self._data_dir).free < size + MIN_FREE_BYTES:
                    raise OSError("the platform's disk has no room for it")
                self._file = self._open(path, size, mtime)
            except OSError as error:
                self._give_up(path, (size, mtime), error.strerror or str(error))
                continue
            return True
        return False

    def _open(self, path: str, size: int, mtime: int) -> _IncomingFile:
        kind = path.partition("/")[0]
        top = (
            self._data_dir
            / {"checkpoints": CHECKPOINTS_FOLDER, "code": TREES_FOLDER, "outputs": OUTPUTS_FOLDER}[kind]
            / PARTIAL_FOLDER
        )
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = hashlib.sha256(f"{self._node_rank}/{path}/{size}/{mtime}".encode()).hexdigest()[:16]
        own = f"{self._task_id}-{self._node_rank}-"
        for other in top.glob(f"{own}*"):
            if other.name != own + key:
                other.unlink(missing_ok=True)
        name = top / (own + key)
        part = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        have = min(os.fstat(part).st_size, size) if size > MAX_PIECE_BYTES else 0
        return _IncomingFile(path, size, mtime, part, name, have, have)

    def answer(self, number: Any, answer: Mapping[str, Any], data: bytes) -> bool:
        """Process an answer; return whether what is left out has changed. An answer without a request is dropped."""
        asked = self._in_flight.pop(number, None) if isinstance(number, int) else None
        if asked is None:
            return False
        one, what, at = asked
        if one is not self._file:
            return False
        if answer.get("code") == "INSIDE_FILE_CHANGED":  # the environment sends a new list by itself
            self._listed = False
            self._drop()
            return False
        if answer.get("ok") is not True:
            return self._failed(one, str(answer.get("code"))[:100])
        try:
            if what == "digest":
                self._hash(one, one.size)
                return self._finish(one) if answer.get("sha256") == one.sum.hexdigest() else self._begin_again(one)
            return self._take(one, at, answer, data)
        except OSError as error:
            return self._failed(one, error.strerror or str(error), for_good=True)

    def _take(self, file: _IncomingFile, at: int, answer: Mapping[str, Any], data: bytes) -> bool:
        wanted = min(MAX_PIECE_BYTES, file.size - at)
        if at != file.have or len(data) != wanted or hashlib.sha256(data).hexdigest() != answer.get("sha256"):
            return self._begin_again(file)
        written = 0
        while written < wanted:
            written += os.pwrite(file.part, data[written:], at + written)
        file.have = at + wanted
        self._hash(file, min(file.have, file.hashed + 16 * MAX_PIECE_BYTES))
        if file.have - file.synced >= SYNC_BYTES:  # in parts: at the end a log's line would wait for all of it
            os.fdatasync(file.part)
            file.synced = file.have
        return self._finish(file) if file.have == file.size <= MAX_PIECE_BYTES and at == 0 else False

    @staticmethod
    def _hash(file: _IncomingFile, end: int) -> None:
        """Add bytes up to `end` to the hash. What an earlier process has downloaded is read again, a part with each
        piece."""
        while file.hashed < end:
            data = os.pread(file.part, min(1 << 20, end - file.hashed), file.hashed)
            if not data:
                raise OSError("a file that arrives was cut")
            file.sum.update(data)
            file.hashed += len(data)

    def _finish(self, file: _IncomingFile) -> bool:
        kind, _, rest = file.path.partition("/")
        os.ftruncate(file.part, file.size)
        os.fchmod(file.part, 0o644)
        os.utime(file.part, ns=(file.mtime, file.mtime))
        os.fsync(file.part)
        self._trees[kind].put(file.name, rest)
        if kind == "code":
            _mark_ready(f"{self._trees[kind].root}.attempt")
        self._drop()
        return False

    def _begin_again(self, file: _IncomingFile) -> bool:
        """Start the file over, a few times at most, because its content is not what was listed."""
        os.ftruncate(file.part, 0)
        return self._failed(file, "its content is not what was announced")

    def _failed(self, file: _IncomingFile, why: str, *, for_good: bool = False) -> bool:
        stamp = file.size, file.mtime
        tries = self._tries[file.path, stamp] = self._tries.get((file.path, stamp), 0) + 1
        self._drop()
        if tries < MAX_TRIES and not for_good:
            self._wanted.append(file.path)
            return False
        with suppress(OSError):
            file.name.unlink()
        return self._give_up(file.path, stamp, why)

    def _give_up(self, path: str, stamp: FileStamp, why: str) -> bool:
        self._tries[path, stamp] = MAX_TRIES
        known = [one for one in self.record.left_out if one["path"] != path]
        self.record.left_out = [*known, {**_build_left_out("INSIDE_FILES_FAILED", path, stamp[0], 0), "why": why}][
            :MAX_LEFT_OUT
        ]
        try:
            self.record.save(self._path)
        except OSError:
            return False  # reported with the next list
        return True

    def _drop(self) -> None:
        if self._file:
            os.close(self._file.part)
            self._file = None


def _mark_ready(path: str) -> None:
    """Write the file without which nothing in a working tree counts as written by its task. Its time is before
    theirs."""
    with suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.utime(file, (0, 0))
        os.close(file)


def _find_limited_folder(path: str) -> str:
    """Return what a folder's limit applies to: the folder that a file lies in, or a file that lies in none."""
    above = path.rpartition("/")[0]
    return path if above in KINDS else above


def _is_unclaimed(path: str, others: Mapping[int, DownloadRecord]) -> bool:
    """Return whether no other node has the file as its own."""
    return not any(path in record.rows and not record.rows[path][2] for record in others.values())


def _build_left_out(code: str, path: str, size: int, limit: int) -> dict[str, Any]:
    return {"code": code, "path": path, "size": size, "limit": limit}
