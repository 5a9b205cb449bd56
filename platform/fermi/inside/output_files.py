"""Lists and sends what an attempt's ranks have written in folders that the platform cannot access, and receives files
of the platform into these folders. Standard library only, Python 3.9 or later.

    checkpoints/…   FERMI_CHECKPOINT_DIR: <home>/data/checkpoints/<task>
    code/…          next to the script: <home>/data/trees/<task>/code, without the snapshot's own files
    outputs/…       FERMI_OUTPUT_DIR: <home>/data/outputs/<task>; once the ranks have ended

    <home>/given/<task>.json    files that the platform sent, {"<path below data>": [size, mtime in ns]}

A row of a list: [path, size in bytes, mtime in ns, whether it came from the platform]. The size is -1 while a file may
still be written: it must stay unchanged for `SETTLE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Any

from fermi.inside import node_runs, protocol
from fermi.runner import code, files
from fermi.runner.run_names import parse_run_name

KINDS = ("checkpoints", "code", "outputs")
SETTLE_SECONDS = {"checkpoints": 3.0, "code": 30.0, "outputs": 0.0}
MAX_FILES, MAX_DEPTH, MAX_PATH = 10_000, 32, 1024
"""Of a list: files, nested folders, bytes of a path."""
MAX_NAMES = 100_000
"""Names that are read for a list."""
MAX_PIECE_BYTES = 256 << 10
PARTIAL_SUFFIX = ".fermi-part"
"""The suffix of files that are incomplete."""
FileStamp = tuple[int, int]
FileRow = list[Any]


def get_output_folders(home: str, task: str) -> dict[str, Path]:
    """Return the folder of each kind."""
    data = Path(home, "data")
    return {
        "checkpoints": data / "checkpoints" / task,
        "code": data / "trees" / task / "code",
        "outputs": data / "outputs" / task,
    }


def get_data_path(home: str, kind: str, task: str) -> str:
    """Return that folder's path below the data folder."""
    return get_output_folders(home, task)[kind].relative_to(Path(home, "data")).as_posix()


class OutputLister:
    """Lists the files of a task. Keeps since when each file is unchanged."""

    def __init__(self, home: str, task: str) -> None:
        self._home, self._task = home, task
        self._roots = get_output_folders(home, task)
        self._since: dict[str, tuple[FileStamp, float]] = {}
        self._snapshot: tuple[int, frozenset[str]] | None = None

    def list_files(self, *, over: bool) -> tuple[list[FileRow], bool]:
        """Return the rows, and whether there are more than a list may have. `over`: nothing is written any more."""
        rows: list[FileRow] = []
        left, given, moment = MAX_NAMES, read_sent_files(self._home, self._task), time.monotonic()
        known, self._since = self._since, {}
        for kind in KINDS if over else KINDS[:2]:
            own = self._own(kind)
            if own is None:
                continue
            above = get_data_path(self._home, kind, self._task)
            stack = [("", 0)]
            while stack:
                folder, depth = stack.pop()
                for entry in _list_entries(self._roots[kind] / folder):
                    left -= 1
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if left < 0 or len(rows) >= MAX_FILES:
                        return rows, True
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH and (kind != "code" or entry.name not in code.GENERATED_FOLDERS):
                            stack.append((path, depth + 1))
                        continue
                    stamp = _read_stamp(entry)
                    if (
                        stamp is None
                        or not is_valid_path(path)
                        or entry.name.endswith(PARTIAL_SUFFIX)
                        or own(path, stamp)
                    ):
                        continue
                    named = f"{kind}/{path}"
                    since = known[named][1] if known.get(named, (None,))[0] == stamp else moment
                    self._since[named] = stamp, since
                    came = given.get(f"{above}/{path}") == list(stamp)
                    settled = over or came or moment - since >= SETTLE_SECONDS[kind]
                    rows.append([named, *stamp, came] if settled else [named, -1, 0, False])
        rows.sort()
        return rows, False

    def _own(self, kind: str) -> Any:
        """Return a function that tells whether a file is the snapshot's, unchanged; None if nothing is to be listed yet
        because the tree is being set up."""
        if kind != "code":
            return lambda path, stamp: False
        tree = str(self._roots[kind])
        try:
            ready = os.stat(f"{tree}.attempt").st_mtime_ns
            changed = os.stat(f"{tree}.manifest").st_mtime_ns
            if self._snapshot is None or self._snapshot[0] != changed:
                paths = frozenset(one.path for one in code.parse_manifest(Path(f"{tree}.manifest").read_bytes()))
                self._snapshot = changed, paths
        except (OSError, code.ManifestError):
            return None
        names = self._snapshot[1]
        return lambda path, stamp: path in names and stamp[1] <= ready


def _list_entries(folder: Path) -> list[Any]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return []


def _read_stamp(entry: Any) -> FileStamp | None:
    with contextlib.suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            return found.st_size, found.st_mtime_ns
    return None


def is_valid_path(path: str) -> bool:
    """Return True if the path is UTF-8 and not too long: other bytes cannot be sent."""
    try:
        return len(path.encode()) <= MAX_PATH
    except UnicodeEncodeError:
        return False


def _open_listed(home: str, request: dict[str, Any]) -> int:
    """Return a descriptor. Raises InsideRefusedError if it is not the file that was listed."""
    kind, _, path = str(request["path"]).partition("/")
    root = get_output_folders(home, parse_run_name(str(request["of"]))[0])[kind]
    if ".." in path.split("/") or not path:
        raise ValueError("a path that leads elsewhere")
    try:
        file = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise protocol.InsideRefusedError("INSIDE_FILE_CHANGED", path=path) from error
    if not _is_unchanged(file, request):
        os.close(file)
        raise protocol.InsideRefusedError("INSIDE_FILE_CHANGED", path=path)
    return file


def _is_unchanged(file: int, request: dict[str, Any]) -> bool:
    found = os.fstat(file)
    return stat.S_ISREG(found.st_mode) and [found.st_size, found.st_mtime_ns] == [request["size"], request["mtime"]]


def read_piece(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return a piece of a listed file: of attempt `of`, `path`, its `size` and `mtime` as listed, from `at` on, at most
    `most` bytes. `data`: the bytes; `sha256` of these. Raises InsideRefusedError."""
    file = _open_listed(home, request)
    try:
        data = os.pread(file, min(int(request["most"]), MAX_PIECE_BYTES), int(request["at"]))
        if not _is_unchanged(file, request):
            raise protocol.InsideRefusedError("INSIDE_FILE_CHANGED", path=str(request["path"]))
    finally:
        os.close(file)
    return {"sha256": hashlib.sha256(data).hexdigest(), "data": data}


def hash_file(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the SHA-256 of a listed file, named as for `read_piece`. Takes seconds for each gigabyte. Raises
    InsideRefusedError."""
    found = hashlib.sha256()
    with open(_open_listed(home, request), "rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
        if not _is_unchanged(file.fileno(), request):
            raise protocol.InsideRefusedError("INSIDE_FILE_CHANGED", path=str(request["path"]))
    return {"sha256": found.hexdigest()}


def list_outputs(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return all files of a task, while none of its attempts runs."""
    rows, more = OutputLister(home, parse_run_name(str(request["of"]))[0]).list_files(over=True)
    return {"rows": rows, "more": more}


def read_sent_files(home: str, task: str) -> dict[str, Any]:
    """Return the record of files that the platform sent."""
    found = files.read_json(str(_get_record_path(home, task)))
    return found if isinstance(found, dict) else {}


def _get_record_path(home: str, task: str) -> Path:
    return Path(home, "given", f"{task}.json")


def compare_sent_files(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Compare the files that the platform is about to send for `node` of attempt `of`: `files`, rows [path below the
    data folder, size, mtime]. Removes files that it sent before and does not have any more, unless they were changed
    here. Return `missing`: the numbers of rows that differ here; none if the attempt has started or must not."""
    folder = node_runs.get_run_folder(home, request["of"])
    if (folder / "stop.json").exists() or node_runs.has_begun(folder, request["node"]):
        return {"missing": []}
    task, data = parse_run_name(str(request["of"]))[0], Path(home, "data")
    wanted = {str(path): [int(size), int(mtime)] for path, size, mtime in request["files"]}
    before = read_sent_files(home, task)
    for path, known in before.items():
        if path not in wanted and _read_size_and_time(resolve_data_path(data, path)) == known:
            with contextlib.suppress(OSError):
                resolve_data_path(data, path).unlink()
    missing = [
        number
        for number, path in enumerate(wanted)
        if _read_size_and_time(resolve_data_path(data, path)) != wanted[path]
    ]
    there = list(wanted)
    told = {path: wanted[path] for path in before if path in wanted} | {there[at]: wanted[there[at]] for at in missing}
    _get_record_path(home, task).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.write_json_atomically(str(_get_record_path(home, task)), told, 0o600)
    return {"missing": missing}


def _read_size_and_time(path: Path) -> list[int] | None:
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        return [found.st_size, found.st_mtime_ns] if stat.S_ISREG(found.st_mode) else None
    return None


def resolve_data_path(data: Path, path: str) -> Path:
    """Return a file's path below the data folder. Raises ValueError for one elsewhere."""
    found = data / path
    if ".." in found.parts or found == data or data not in found.parents:
        raise ValueError("a path that leads elsewhere")
    return found


def receive_piece(home: str, request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Write a piece of a file below the data folder, at its offset `at`; without one the state is only queried. With
    its last byte the file gets its name. `mtime` (ns) and `sha256`: verified, and then set. Return `have`: how many
    bytes are there, which may be all. Raises InsideRefusedError if the content differs."""
    path = resolve_data_path(Path(str(request.get("data") or os.path.join(home, "data"))), str(request["path"]))
    size, mtime = int(request["size"]), request.get("mtime")
    there = _read_size_and_time(path)
    if there and there[0] == size and mtime in (None, there[1]):
        return {"have": size}
    key = hashlib.sha256(f"{path.name}/{size}/{mtime}".encode()).hexdigest()[:16]
    partial = path.with_name(f".{key}{PARTIAL_SUFFIX}")
    if "at" not in request:
        have = partial.stat().st_size if partial.exists() else 0
        return {"have": have if have < size else 0}
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as file:
        file.seek(int(request["at"]))
        file.write(data)
        file.truncate()
        have = file.tell()
    if have == size:
        if wanted := request.get("sha256"):
            with open(partial, "rb") as file:
                found = hashlib.sha256()
                while piece := file.read(1 << 20):
                    found.update(piece)
            if found.hexdigest() != wanted:
                partial.unlink()
                raise protocol.InsideRefusedError("INSIDE_FILE_BROKEN", path=str(request["path"]))
        if mtime is not None:
            os.utime(partial, ns=(int(mtime), int(mtime)))
        os.replace(partial, path)
    return {"have": have}
