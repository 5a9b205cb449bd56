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
from fermi.jobs.code import ARCHIVES
from fermi.jobs.snapshot import File

PIECE = 1 << 20


class Lost(Exception):
    """A content that a row refers to is missing or damaged."""

    def __init__(self, path: str, sha256: str) -> None:
        super().__init__(f"{path}: {sha256}")
        self.path, self.sha256 = path, sha256


class Different(Exception):
    """The contents sent do not have the announced hash or size."""


def root() -> Path:
    return settings.DATA_DIR / "code"


@contextmanager
def using(*, alone: bool = False) -> Iterator[None]:
    """Hold a lock on the store: shared for code that checks what exists, exclusive (`alone`) for code that removes
    files."""
    _folder(root())
    lock = os.open(root() / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def blob(sha256: str) -> Path:
    """Return the path of a content."""
    return root() / "blobs" / sha256[:2] / sha256


def put_blob(source: IO[bytes], sha256: str, size: int) -> None:
    """Read `size` bytes from `source` and store them, verified. Raises DigestMismatchError."""
    target = blob(sha256)
    _folder(target.parent)
    with _temporary(target) as (file, keep):
        digest, left = hashlib.sha256(), size
        while left and (piece := source.read(min(PIECE, left))):
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
        if left or digest.hexdigest() != sha256:
            raise Different
        keep()


def read_blob(sha256: str) -> bytes:
    return blob(sha256).read_bytes()


def put_manifest(manifest: bytes) -> None:
    """Store a manifest, or mark the present one as recent."""
    target = _manifest(snapshot.identity(manifest))
    with using():
        if not target.exists():
            _folder(target.parent)
            with _temporary(target) as (file, keep):
                file.write(manifest)
                keep()
        else:
            os.utime(target)


def read_manifest(digest: str) -> bytes:
    return _manifest(digest).read_bytes()


def files(digest: str) -> list[File]:
    """Return the files of a snapshot."""
    return snapshot.load(read_manifest(digest))


def folder_of(digest: str) -> Path:
    """Return the folder of a snapshot's archive, whether it exists or not; a task's plan names it."""
    return Path(settings.DATA_DIR / ARCHIVES / digest)


def archive(digest: str) -> Path:
    """Return the folder with the snapshot's archive; creates the archive if it is missing. Raises
    ContentMissingError."""
    folder = folder_of(digest)
    with using():
        if (folder / snapshot.ARCHIVE).exists() and (folder / snapshot.MANIFEST).exists():
            os.utime(folder)
            return folder
    _folder(folder)
    manifest = read_manifest(digest)
    with _temporary(folder / snapshot.ARCHIVE) as (file, keep):
        snapshot.write_archive(file, snapshot.load(manifest), _Verified)
        os.fchmod(file.fileno(), 0o644)
        keep()
    with _temporary(folder / snapshot.MANIFEST) as (file, keep):
        file.write(manifest)
        os.fchmod(file.fileno(), 0o644)
        keep()
    return folder


class _Verified:
    """A blob that is hashed while it is read, so that a damaged one is noticed before a node gets it. Raises
    ContentMissingError."""

    def __init__(self, sha256: str) -> None:
        self.sha256, self._digest = sha256, hashlib.sha256()

    def __enter__(self) -> "_Verified":
        try:
            self._file = blob(self.sha256).open("rb")
        except OSError as error:
            raise Lost(str(error.filename), self.sha256) from error
        return self

    def read(self, size: int) -> bytes:
        piece = self._file.read(size)
        self._digest.update(piece)
        return piece

    def __exit__(self, kind: object, *raised: object) -> None:
        self._file.close()
        if self._digest.hexdigest() != self.sha256:  # also why there were too few bytes
            raise Lost(str(blob(self.sha256)), self.sha256)


def _manifest(digest: str) -> Path:
    return root() / "manifests" / f"{digest}.json"


_made: set[Path] = set()


def _folder(path: Path) -> None:
    if path not in _made or not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        _made.add(path)


@contextmanager
def _temporary(target: Path) -> Iterator[tuple[BinaryIO, "_Keep"]]:
    """Yield a file beside `target`, and a function that makes it replace `target` when the block ends."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".")
    keep = _Keep()
    try:
        with open(descriptor, "wb") as file:
            yield file, keep
        if keep.wanted:
            os.replace(name, target)
            name = ""
    finally:
        if name:
            os.unlink(name)


class _Keep:
    wanted = False

    def __call__(self) -> None:
        self.wanted = True


def remove_archive(digest: str) -> None:
    shutil.rmtree(folder_of(digest), ignore_errors=True)
