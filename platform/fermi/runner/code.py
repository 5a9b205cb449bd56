"""Snapshots of code: their manifest and archive, and how both are verified. Standard library only, Python 3.9 or later.

A manifest names every file of a tree. The id of the snapshot is the SHA-256 of the manifest's bytes, so a receiver that
knows the id can verify what it got:

    {"files":[{"mode":420,"path":"train.py","sha256":"…","size":812},{"link":"train.py","path":"run.py"}],"version":1}

Sorted by path; modes are 0644 or 0755. A snapshot is sent to a node as a folder with `manifest.json` and `code.tar`,
which has the files in the manifest's order; `worktree.py` makes a tree of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

MANIFEST_NAME, ARCHIVE_NAME = "manifest.json", "code.tar"
MANIFEST_VERSION = 1
PLAIN_MODE, EXECUTABLE_MODE = 0o644, 0o755
GENERATED_FOLDERS = frozenset({"__pycache__", ".ipynb_checkpoints"})
"""Folders that Python and Jupyter create next to files: left out of snapshots and of lists of a task's files."""
CHUNK_BYTES = 1 << 20
MAX_PATH_BYTES, MAX_NAME_BYTES = 1024, 255  # bytes
_HASH = re.compile(r"[0-9a-f]{64}")


class SnapshotFile(NamedTuple):
    """A file of a snapshot. `link`: the target of a symbolic link; empty for a regular file."""

    path: str
    mode: int = 0
    size: int = 0
    sha256: str = ""
    link: str = ""


class ManifestError(ValueError):
    """The manifest is invalid, or names what a snapshot cannot have. `code`: SNAPSHOT_…"""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(f"{code}: {params}")
        self.code, self.params = code, params


class CodeDeliveryError(Exception):
    """The code or its packages could not be set up on this node. `code` is a cause."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(f"{code}: {params}")
        self.code, self.params = code, params


def serialize_manifest(files: Iterable[SnapshotFile]) -> bytes:
    """Return the manifest of these files: always the same bytes for the same files."""
    rows = [
        {"path": one.path, "link": one.link}
        if one.link
        else {"path": one.path, "mode": one.mode, "size": one.size, "sha256": one.sha256}
        for one in sorted(files)
    ]
    said = {"version": MANIFEST_VERSION, "files": rows}
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def compute_snapshot_id(manifest: bytes) -> str:
    """Return the snapshot's id: the SHA-256 of its manifest."""
    return hashlib.sha256(manifest).hexdigest()


def parse_manifest(manifest: bytes) -> list[SnapshotFile]:
    """Return the files of a manifest. Raises ManifestError."""
    try:
        said = json.loads(manifest)
        if said["version"] != MANIFEST_VERSION:
            raise ManifestError("SNAPSHOT_MALFORMED", why=f"version {said['version']!r}")
        files = [SnapshotFile(**row) for row in said["files"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError("SNAPSHOT_MALFORMED", why=f"{type(error).__name__}: {error}"[:200]) from error
    validate_files(files)
    if serialize_manifest(files) != manifest:
        raise ManifestError("SNAPSHOT_MALFORMED", why="not in its one spelling")
    return files


def validate_files(files: Iterable[SnapshotFile]) -> None:
    """Check that every path stays within the tree, none is below a file or link, and none occurs twice. Raises
    ManifestError."""
    leaves: set[str] = set()
    folders: set[str] = set()
    for one in files:
        _check_shape(one)
        if one.path in leaves or one.path in folders:
            raise ManifestError("SNAPSHOT_PATH_TWICE", path=one.path)
        leaves.add(one.path)
        above = one.path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in folders:
                break
            folders.add(above)
    if both := leaves & folders:
        raise ManifestError("SNAPSHOT_PATH_TWICE", path=min(both))


def _check_shape(file: SnapshotFile) -> None:
    for value, kind in zip(file, (str, int, int, str, str)):  # noqa: B905 (strict is newer than 3.9)
        if type(value) is not kind:
            raise ManifestError("SNAPSHOT_MALFORMED", why=f"{value!r} is no {kind.__name__}"[:200])
    if why := find_path_problem(file.path):
        raise ManifestError("SNAPSHOT_PATH_REFUSED", path=file.path[:MAX_PATH_BYTES], why=why)
    if file.link:
        if not is_link_inside(file.path, file.link):
            raise ManifestError("SNAPSHOT_LINK_LEAVES", path=file.path, link=file.link[:MAX_PATH_BYTES])
    elif file.mode not in (PLAIN_MODE, EXECUTABLE_MODE) or file.size < 0 or not _HASH.fullmatch(file.sha256):
        raise ManifestError("SNAPSHOT_MALFORMED", why=f"{file.path}: mode, size or hash")


def find_path_problem(path: str) -> str:
    """Return why a snapshot cannot have this path, or an empty string if it can."""
    parts = path.split("/")
    if not path or path.startswith("/"):
        return "absolute or empty"
    if any(part in ("", ".", "..") for part in parts):
        return "'.', '..' or an empty part"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        return "a control character"
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        return "not UTF-8"
    if len(raw) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        return "too long"
    return ""


def is_link_inside(path: str, link: str) -> bool:
    """Return True if a link's target is within the tree. '..' may only stand at its beginning, so that the target does
    not depend on other links."""
    parts = link.split("/")
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    rest = parts[up:]
    return not link.startswith("/") and up <= path.count("/") and not (rest and find_path_problem("/".join(rest)))


# --- as a folder of the file system -----------------------------------------------------------------------------------


def write_archive(out: BinaryIO, files: Iterable[SnapshotFile], content: Any) -> None:
    """Write a tar archive of these files: always the same bytes for the same files. `content(sha256)` opens a file's
    bytes."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for one in files:
            entry = tarfile.TarInfo(one.path)
            if one.link:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, one.link, 0o777
                tar.addfile(entry)
                continue
            entry.size, entry.mode = one.size, one.mode
            with content(one.sha256) as source:
                tar.addfile(entry, source)


def read_manifest(folder: str, snapshot: str) -> list[SnapshotFile]:
    """Return the files of the manifest in `folder`. Raises CodeDeliveryError if it is not that of `snapshot`."""
    path = os.path.join(folder, MANIFEST_NAME)
    try:
        with open(path, "rb") as file:
            manifest = file.read()
    except OSError as error:
        raise CodeDeliveryError("CODE_ARCHIVE_MISSING", path=path) from error
    if (found := compute_snapshot_id(manifest)) != snapshot:
        raise CodeDeliveryError(
            "CODE_ARCHIVE_BROKEN", path=path, file=MANIFEST_NAME, expected=snapshot[:12], found=found[:12]
        )
    try:
        return parse_manifest(manifest)
    except ManifestError as error:  # it was taken in by another release
        raise CodeDeliveryError(
            "CODE_ARCHIVE_BROKEN", path=path, file=MANIFEST_NAME, expected="", found=str(error)
        ) from error


def extract_archive(stream: BinaryIO, files: list[SnapshotFile], target: str, name: str) -> None:
    """Extract an archive and hash each file while it is written. Raises CodeDeliveryError and OSError; then nothing is
    left of `target`. `name`: the archive's, for errors."""
    os.makedirs(target)
    try:
        made = {""}
        for one, content in read_entries(stream, files, name):
            _make_parent(target, one.path, made)
            if one.link:
                os.symlink(one.link, os.path.join(target, one.path))
            else:
                write_file(os.path.join(target, one.path), one, content, name)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def read_entries(stream: BinaryIO, files: Iterable[SnapshotFile], name: str) -> Iterator[tuple[SnapshotFile, Any]]:
    """Yield each file with its content, which has to be read before the next one. `name`: the archive's. Raises
    CodeDeliveryError if the archive has another file in its place."""
    with _open_archive(stream, name) as found:
        for one in files:
            entry, content = next(found, (None, None))
            if entry is None or entry.name != one.path:
                there = entry.name if entry else "the archive's end"
                raise CodeDeliveryError("CODE_ARCHIVE_BROKEN", path=name, file=one.path, expected=one.path, found=there)
            yield one, content


@contextlib.contextmanager
def _open_archive(stream: BinaryIO, name: str) -> Iterator[Iterator[Any]]:
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            yield ((entry, tar.extractfile(entry) if entry.isreg() else None) for entry in tar)
    except tarfile.TarError as error:
        raise CodeDeliveryError(
            "CODE_ARCHIVE_BROKEN", path=name, file=ARCHIVE_NAME, expected="", found=str(error)
        ) from error


def _make_parent(target: str, path: str, made: set[str]) -> None:
    above = path.rpartition("/")[0]
    if above not in made:
        os.makedirs(os.path.join(target, above), exist_ok=True)
        made.add(above)


def write_file(path: str, entry: SnapshotFile, content: Any, name: str) -> None:
    """Create the file at `path`, which must not exist. Raises CodeDeliveryError if the content is not that of the
    snapshot."""
    digest, size = hashlib.sha256(), 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, entry.mode), "wb") as file:
        while content is not None and (piece := content.read(CHUNK_BYTES)):
            digest.update(piece)
            size += len(piece)
            file.write(piece)
        os.fchmod(file.fileno(), entry.mode)
    if digest.hexdigest() != entry.sha256 or size != entry.size:
        found = f"{digest.hexdigest()[:12]}, {size} bytes"
        expected = f"{entry.sha256[:12]}, {entry.size} bytes"
        raise CodeDeliveryError("CODE_ARCHIVE_BROKEN", path=name, file=entry.path, expected=expected, found=found)
