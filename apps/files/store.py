"""Stores of file contents: a folder, or object storage that `fsspec` supports (FERMI_FILES=s3://bucket/prefix).

    <root>/<project>/<path>        files of a project: a folder of the project's own, which its ranks may read
    <root>/.outputs/<task>/<path>  in object storage: what a task has written

Contents arrive whole or not at all: a rename in a folder, the end of a multipart upload in object storage. Each act may
be repeated: one that is done already changes nothing.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from django.conf import settings

from fermi.engines.safe_tree import SafeTree

OUTPUTS_FOLDER = ".outputs"
MIN_PART_BYTES, MAX_PARTS = 64 << 20, 9_000
"""Size and number of parts of a multipart upload: S3 allows 10,000 parts
(docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html)."""


def make_key(project: str, path: str, task: str = "") -> str:
    """Return the key of a file in the store."""
    return f"{OUTPUTS_FOLDER}/{task}/{path}" if task else f"{project}/{path}"


class StoreUnusableError(Exception):
    """The store does not answer as it should; `why` is what it says."""


class FileStore(Protocol):
    """Interface of a store. `remote`: ranks do not see it as files. `staging`: folder where uploads are collected."""

    remote: bool
    staging: Path

    def put(self, source: Path, key: str) -> None:
        """Store the file `source`, which may be gone afterwards."""

    def open(self, key: str) -> BinaryIO:
        """Return the content, seekable. Raises FileNotFoundError."""

    def size(self, key: str) -> int | None:
        """Return the size in bytes, or None if there is no such file."""

    def move(self, key: str, to: str) -> None: ...

    def delete(self, key: str) -> None: ...

    def get_location(self, project: str) -> str:
        """Return where the project's files are for its ranks: a folder, or an address."""


class FolderStore:
    """Store in a folder."""

    remote = False

    def __init__(self, root: Path) -> None:
        self._tree = SafeTree(root)
        self.staging = root / ".incoming"

    def put(self, source: Path, key: str) -> None:
        self._tree.put(source, key)

    def open(self, key: str) -> BinaryIO:
        try:
            return self._tree.open(key)
        except OSError as error:
            raise FileNotFoundError(key) from error

    def size(self, key: str) -> int | None:
        with suppress(OSError):
            found = self._tree.get_entry(key)
            return None if found.folder else found.size
        return None

    def move(self, key: str, to: str) -> None:
        try:
            self._tree.move(key, to)
        except FileNotFoundError:
            if self.size(to) is None:
                raise

    def delete(self, key: str) -> None:
        self._tree.delete(key)

    def get_location(self, project: str) -> str:
        return str(self._tree.root / project)


class ObjectStore:
    """Object storage. Credentials and address: FERMI_FILES_KEY, FERMI_FILES_SECRET, FERMI_FILES_ENDPOINT, or where the
    service's own library finds them (AWS_ACCESS_KEY_ID, a role of the machine, …)."""

    remote = True

    def __init__(self, url: str, staging: Path) -> None:
        protocol, _, root = url.partition("://")
        self._url, self._root, self.staging = url.rstrip("/"), root.strip("/"), staging
        self._fs: Any = _open_filesystem(protocol, settings.FILES_ENDPOINT, settings.FILES_KEY, settings.FILES_SECRET)

    def put(self, source: Path, key: str) -> None:
        """Upload the file by one request, or by a multipart upload, which is not visible before it is complete."""
        size = source.stat().st_size
        part = max(MIN_PART_BYTES, size // MAX_PARTS + 1)
        with _TranslatedErrors():
            self._fs.put_file(str(source), self._at(key), chunksize=part)
            if self._fs.info(self._at(key))["size"] != size:
                raise StoreUnusableError(f"{key} has another size there")

    def open(self, key: str) -> BinaryIO:
        with _TranslatedErrors():
            return cast(BinaryIO, self._fs.open(self._at(key), "rb", block_size=8 << 20, cache_type="readahead"))

    def size(self, key: str) -> int | None:
        with suppress(FileNotFoundError), _TranslatedErrors():
            return int(self._fs.info(self._at(key))["size"])
        return None

    def move(self, key: str, to: str) -> None:
        """Move an object: object storage has no rename, so the service copies it, then the original is deleted."""
        if self.size(key) is None:
            if self.size(to) is None:
                raise FileNotFoundError(key)
            return
        with _TranslatedErrors():
            self._fs.cp_file(self._at(key), self._at(to))
        self.delete(key)

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError), _TranslatedErrors():
            self._fs.rm_file(self._at(key))

    def get_location(self, project: str) -> str:
        return f"{self._url}/{project}"

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}"


class _TranslatedErrors:
    """Raises StoreUnusableError for whatever libraries of object storage raise: they have dozens of exceptions."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, FileNotFoundError | StoreUnusableError):
            raise StoreUnusableError(f"{type(error).__name__}: {error}"[:300]) from error


@lru_cache(maxsize=4)
def _open_filesystem(protocol: str, endpoint: str, name: str, secret: str) -> Any:
    """Return the file system, one for all threads: its requests are made by a thread of its own."""
    import fsspec  # type: ignore[import-untyped]

    given = {"endpoint_url": endpoint, "key": name, "secret": secret}
    given = {option: value for option, value in given.items() if value} if protocol == "s3" else {}
    return fsspec.filesystem(protocol, use_listings_cache=False, skip_instance_cache=True, **given)


def get_store() -> FileStore:
    """Return the configured store."""
    return _make_store(settings.FILES, str(settings.DATA_DIR), settings.FILES_ENDPOINT, settings.FILES_KEY)


@lru_cache(maxsize=4)
def _make_store(files: str, data: str, *_: str) -> FileStore:
    if "://" in files:
        return ObjectStore(files, Path(data, "incoming"))
    return FolderStore(Path(files or os.path.join(data, "files")))


def read_chunks(file: BinaryIO, begin: int, length: int, size: int = 1 << 20) -> Iterator[bytes]:
    """Yield `length` bytes from `begin` on, or as many as there are; the file is closed afterwards."""
    with file:
        file.seek(begin)
        while length > 0 and (piece := file.read(min(size, length))):
            length -= len(piece)
            yield piece
