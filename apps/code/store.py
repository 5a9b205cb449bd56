"""Files of snapshots in the data directory.

    code/blobs/ab/abcd…           each content once, by its SHA-256
    code/manifests/<id>.json      what a snapshot consists of
    code/archives/<id>/           manifest.json and code.tar: what nodes read; made when it is first wanted, and again
                                  when somebody has removed it

Nothing here knows projects: who may have what is said by rows.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from django.conf import settings

from fermi.jobs import snapshot
from fermi.jobs.code import ARCHIVES_FOLDER
from fermi.jobs.snapshot import SnapshotFile

CHUNK_BYTES = 1 << 20


class ContentMissingError(Exception):
    """A content that a row refers to is missing or damaged."""

    def __init__(self, path: str, sha256: str) -> None:
        super().__init__(f"{path}: {sha256}")
        self.path, self.sha256 = path, sha256


class DigestMismatchError(Exception):
    """The contents sent do not have the announced hash or size."""


def get_root() -> Path:
    return settings.DATA_DIR / "code"


@contextmanager
def lock_store(*, alone: bool = False) -> Iterator[None]:
    """Hold a lock on the store: shared for code that checks what exists, exclusive (`alone`) for code that removes
    files."""
    _make_folder(get_root())
    lock = os.open(get_root() / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def get_blob_path(sha256: str) -> Path:
    """Return the path of a content."""
    return get_root() / "blobs" / sha256[:2] / sha256


def write_blob(source: IO[bytes], sha256: str, size: int) -> None:
    """Read `size` bytes from `source` and store them, verified. Raises DigestMismatchError."""
    target = get_blob_path(sha256)
    _make_folder(target.parent)
    with _open_temporary(target) as (file, keep):
        digest, left = hashlib.sha256(), size
        while left and (piece := source.read(min(CHUNK_BYTES, left))):
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
        if left or digest.hexdigest() != sha256:
            raise DigestMismatchError
        keep()


def read_blob(sha256: str) -> bytes:
    return get_blob_path(sha256).read_bytes()


def write_manifest(manifest: bytes) -> None:
    """Store a manifest, or mark the present one as recent."""
    target = _get_manifest_path(snapshot.compute_snapshot_id(manifest))
    with lock_store():
        if not target.exists():
            _make_folder(target.parent)
            with _open_temporary(target) as (file, keep):
                file.write(manifest)
                keep()
        else:
            os.utime(target)


def read_manifest(digest: str) -> bytes:
    return _get_manifest_path(digest).read_bytes()


def list_files(digest: str) -> list[SnapshotFile]:
    """Return the files of a snapshot."""
    return snapshot.parse_manifest(read_manifest(digest))


def get_archive_folder(digest: str) -> Path:
    """Return the folder of a snapshot's archive, whether it exists or not; a task's plan names it."""
    return Path(settings.DATA_DIR / ARCHIVES_FOLDER / digest)


def ensure_archive(digest: str) -> Path:
    """Return the folder with the snapshot's archive; creates the archive if it is missing. Raises
    ContentMissingError."""
    folder = get_archive_folder(digest)
    with lock_store():
        if (folder / snapshot.ARCHIVE_NAME).exists() and (folder / snapshot.MANIFEST_NAME).exists():
            os.utime(folder)
            return folder
    _make_folder(folder)
    manifest = read_manifest(digest)
    with _open_temporary(folder / snapshot.ARCHIVE_NAME) as (file, keep):
        snapshot.write_archive(file, snapshot.parse_manifest(manifest), _VerifiedBlob)
        os.fchmod(file.fileno(), 0o644)
        keep()
    with _open_temporary(folder / snapshot.MANIFEST_NAME) as (file, keep):
        file.write(manifest)
        os.fchmod(file.fileno(), 0o644)
        keep()
    return folder


class _VerifiedBlob:
    """A blob that is hashed while it is read, so that a damaged one is noticed before a node gets it. Raises
    ContentMissingError."""

    def __init__(self, sha256: str) -> None:
        self.sha256, self._digest = sha256, hashlib.sha256()

    def __enter__(self) -> "_VerifiedBlob":
        try:
            self._file = get_blob_path(self.sha256).open("rb")
        except OSError as error:
            raise ContentMissingError(str(error.filename), self.sha256) from error
        return self

    def read(self, size: int) -> bytes:
        piece = self._file.read(size)
        self._digest.update(piece)
        return piece

    def __exit__(self, kind: object, *raised: object) -> None:
        self._file.close()
        if self._digest.hexdigest() != self.sha256:  # also why there were too few bytes
            raise ContentMissingError(str(get_blob_path(self.sha256)), self.sha256)


def _get_manifest_path(digest: str) -> Path:
    return get_root() / "manifests" / f"{digest}.json"


_known_folders: set[Path] = set()


def _make_folder(path: Path) -> None:
    if path not in _known_folders or not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        _known_folders.add(path)


@contextmanager
def _open_temporary(target: Path) -> Iterator[tuple[BinaryIO, "_KeepFlag"]]:
    """Yield a file beside `target`, and a function that makes it replace `target` when the block ends."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".")
    keep = _KeepFlag()
    try:
        with open(descriptor, "wb") as file:
            yield file, keep
        if keep.wanted:
            os.replace(name, target)
            name = ""
    finally:
        if name:
            os.unlink(name)


class _KeepFlag:
    wanted = False

    def __call__(self) -> None:
        self.wanted = True


def delete_archive(digest: str) -> None:
    shutil.rmtree(get_archive_folder(digest), ignore_errors=True)
