"""Files of a project and outputs of tasks: uploaded and downloaded in pieces, resumed after an interruption, verified
by SHA-256."""

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from fermi.client.errors import FermiError, UnreachableError
from fermi.client.pagination import Listing
from fermi.client.transport import Transport, compute_pause
from fermi.client.types import FileItem, FileUse, LibraryCache, TaskOutputs, UploadItem

UPLOAD_CHUNK_BYTES = 8 << 20
HASH_BLOCK_BYTES = 1 << 20
MAX_TRIES = 6
"""Failed attempts in a row without a byte of progress after which a transfer gives up."""
POLL_SECONDS, MAX_POLL_S = 0.2, 3.0

ProgressCallback = Callable[[int], None]
"""Called with the number of further bytes that have been transferred."""


class ChecksumMismatchError(FermiError):
    """The content that arrived has another SHA-256 than was expected, or another length."""


Damaged = ChecksumMismatchError
"""The former name, for one release."""


def hash_file(file: BinaryIO) -> str:
    """Return the SHA-256 of the rest of the file, as hex digits."""
    found = hashlib.sha256()
    while block := file.read(HASH_BLOCK_BYTES):
        found.update(block)
    return found.hexdigest()


class Files:
    """Files of a project; paths are relative to it: `models/best.pt`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, project: str, path: str = "", *, search: str | None = None) -> Listing[FileItem]:
        return Listing(self._transport, _files_path(project), {"path": path, "search": search})

    def tree(self, project: str, path: str = "") -> Iterator[FileItem]:
        """Yield all files below a folder, those of subfolders included."""
        return _walk(lambda folder: self.list(project, folder), path)

    def use(self, project: str) -> FileUse:
        return self._transport.call("GET", _files_path(project, "/use"))

    def cache(self, project: str) -> LibraryCache:
        """Return what libraries of the project's tasks keep in its cache."""
        return self._transport.call("GET", f"/projects/{quote(project)}/cache")

    def clean_cache(self, project: str, keep_bytes: int = 0) -> LibraryCache:
        """Have the cache cleaned until it has at most so many bytes; what tasks use stays. Return it as it was."""
        body = {"keepBytes": keep_bytes}
        return self._transport.call("POST", f"/projects/{quote(project)}/cache/clean", json=body, repeatable=True)

    def make_folder(self, project: str, path: str) -> FileItem:
        body = {"path": path}
        return self._transport.call("POST", _files_path(project, "/folders"), json=body, repeatable=True)

    def move(self, project: str, path: str, to: str) -> FileItem:
        return self._transport.call("POST", _files_path(project, "/move"), json={"path": path, "to": to})

    def delete(self, project: str, path: str, *, recursive: bool = False) -> None:
        params = {"path": path, "recursive": "true" if recursive else None}
        self._transport.call("DELETE", _files_path(project), params=params)

    def put(
        self,
        project: str,
        path: str,
        source: Path | BinaryIO,
        *,
        replace: bool = False,
        progress: ProgressCallback | None = None,
    ) -> bool:
        """Upload a file and return True; return False where the same content was there already. An interrupted upload
        is resumed. `source` must be seekable. Raise ChecksumMismatchError where what arrived differs."""
        if isinstance(source, Path):
            with source.open("rb") as file:
                return self.put(project, path, file, replace=replace, progress=progress)
        tell = progress or _ignore_progress
        source.seek(0)
        digest = hash_file(source)
        size = source.tell()
        body = {"path": path, "sizeBytes": size, "sha256": digest, "replace": replace}
        uploads = f"/projects/{quote(project)}/file-uploads"
        upload: UploadItem = self._transport.call("POST", uploads, json=body, repeatable=True)
        tell(upload["offset"])
        if upload["state"] == "done":
            return False
        place = f"{uploads}/{quote(upload['id'])}"
        upload = self._send(place, upload, source, tell)
        upload = self._transport.call("POST", f"{place}/finish", repeatable=True)
        wait = POLL_SECONDS
        while upload["state"] == "checking":
            time.sleep(wait)
            wait = min(2 * wait, MAX_POLL_S)
            upload = self._transport.call("GET", place)
        if error := upload["error"]:
            raise ChecksumMismatchError(error["message"], code=error["code"])
        return True

    def _send(self, place: str, upload: UploadItem, source: BinaryIO, tell: ProgressCallback) -> UploadItem:
        """Send the rest of the upload. After a connection error, ask the platform how much has arrived and go on there.
        Return the upload as it is then."""
        tries = 0
        while upload["state"] == "receiving" and upload["offset"] < upload["sizeBytes"]:
            source.seek(upload["offset"])
            piece, before = source.read(UPLOAD_CHUNK_BYTES), upload["offset"]
            try:
                params = {"offset": before}
                upload = self._transport.call(
                    "PUT",
                    f"{place}/content",
                    params=params,
                    content=lambda piece=piece: iter([piece]),  # type: ignore[misc]
                    headers={"Content-Type": "application/octet-stream", "Content-Length": str(len(piece))},
                    repeatable=False,
                )
            except UnreachableError:
                tries += 1
                if tries > MAX_TRIES:
                    raise
                time.sleep(compute_pause(tries))
                upload = self._transport.call("GET", place)
            if not piece:
                raise ChecksumMismatchError(f"{upload['path']} has become shorter", code="UPLOAD_INCOMPLETE")
            tries = 0 if upload["offset"] > before else tries
            tell(upload["offset"] - before)
        return upload

    def get(self, project: str, item: FileItem, into: Path, *, progress: ProgressCallback | None = None) -> bool:
        """Download a file and return True; return False where the same content was there already."""
        return download_file(
            self._transport, _files_path(project, "/content"), {"path": item["path"]}, item, into, progress
        )

    def read(self, project: str, path: str) -> Iterator[bytes]:
        with self._transport.open(_files_path(project, "/content"), params={"path": path}) as response:
            yield from response.iter_bytes()


class Outputs:
    """What a task has written to FERMI_OUTPUT_DIR and beside its script, and its checkpoints as files."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, task: str, path: str = "", *, search: str | None = None) -> Listing[FileItem]:
        return Listing(self._transport, _outputs_path(task), {"path": path, "search": search})

    def tree(self, task: str, path: str = "") -> Iterator[FileItem]:
        return _walk(lambda folder: self.list(task, folder), path)

    def summary(self, task: str) -> TaskOutputs:
        return self._transport.call("GET", _outputs_path(task, "/summary"))

    def get(self, task: str, item: FileItem, into: Path, *, progress: ProgressCallback | None = None) -> bool:
        return download_file(
            self._transport, _outputs_path(task, "/content"), {"path": item["path"]}, item, into, progress
        )

    def read(self, task: str, path: str) -> Iterator[bytes]:
        with self._transport.open(_outputs_path(task, "/content"), params={"path": path}) as response:
            yield from response.iter_bytes()

    def checkpoint(self, task: str, path: str) -> tuple[str, Iterator[bytes]]:
        """Return the media type (application/x-tar for a folder) and the bytes of a checkpoint."""
        opened = self._transport.open(f"/training-tasks/{quote(task)}/checkpoints/content", params={"path": path})
        response = opened.__enter__()

        def pieces() -> Iterator[bytes]:
            try:
                yield from response.iter_bytes()
            finally:
                opened.__exit__(None, None, None)

        return response.headers.get("Content-Type", ""), pieces()


def download_file(
    transport: Transport,
    path: str,
    params: Mapping[str, Any],
    item: FileItem,
    into: Path,
    progress: ProgressCallback | None = None,
) -> bool:
    """Download to `into` and return True; return False where the same content was there already. `into` is replaced
    when the content is complete; until then it is in a `.part` file beside it, which is continued where the content's
    hash is known. Raise ChecksumMismatchError where the hash differs."""
    tell, size, digest = progress or _ignore_progress, item["sizeBytes"] or 0, item["sha256"]
    if digest and into.is_file() and into.stat().st_size == size:
        with into.open("rb") as file:
            if hash_file(file) == digest:
                tell(size)
                return False
    into.parent.mkdir(parents=True, exist_ok=True)
    part = into.with_name(f"{into.name}.{digest[:12] or 'new'}.part")
    if not digest:
        part.unlink(missing_ok=True)
    with part.open("ab") as file:
        tell(file.tell())
        _receive(transport, path, params, file, size, digest, tell)
    if digest:
        with part.open("rb") as whole:
            if hash_file(whole) != digest:
                part.unlink()
                raise ChecksumMismatchError(
                    f"{item['path']} was damaged on the way, or changed meanwhile", code="UPLOAD_CORRUPT"
                )
    os.replace(part, into)
    return True


def _receive(
    transport: Transport,
    path: str,
    params: Mapping[str, Any],
    file: BinaryIO,
    size: int,
    digest: str,
    tell: ProgressCallback,
) -> None:
    tries = 0
    while file.tell() < size or (size == 0 and not digest):
        before = file.tell()
        headers = {"Range": f"bytes={before}-", "If-Range": f'"{digest}"'} if before else {}
        try:
            with transport.open(path, params=params, headers=headers) as response:
                if before and response.status_code != 206:
                    file.truncate(0)
                    file.seek(0, io.SEEK_END)
                for piece in response.iter_bytes():
                    file.write(piece)
                    tell(len(piece))
            file.flush()
            return
        except UnreachableError:
            file.flush()
            tries = 0 if digest and file.tell() > before else tries + 1
            if tries > MAX_TRIES or not digest:
                raise
            time.sleep(compute_pause(tries))


def _walk(listing: Callable[[str], Listing[FileItem]], path: str) -> Iterator[FileItem]:
    for item in listing(path):
        if item["kind"] == "folder":
            yield from _walk(listing, item["path"])
        else:
            yield item


def _ignore_progress(_: int) -> None:
    return None


def _files_path(project: str, more: str = "") -> str:
    return f"/projects/{quote(project)}/files{more}"


def _outputs_path(task: str, more: str = "") -> str:
    return f"/training-tasks/{quote(task)}/outputs{more}"
