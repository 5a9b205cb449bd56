"""Code of projects: snapshots sent and fetched back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import (
    CodeLimits,
    FetchItem,
    SnapshotDiff,
    SnapshotFile,
    SnapshotItem,
    SnapshotMissing,
    SnapshotTree,
)

TOGETHER = 24 << 20
"""Bytes of contents in one request; a larger file goes alone."""
PIECE = 1 << 20

Opened = Callable[[], IO[bytes]]


class Code:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def limits(self) -> CodeLimits:
        """How much a snapshot may hold."""
        return self._transport.call("GET", "/code/limits")

    def list(self, *, project: str | None = None) -> Listing[SnapshotItem]:
        return Listing(self._transport, "/code/snapshots", {"project": project})

    def get(self, snapshot: str) -> SnapshotItem:
        """By its id or a beginning of it."""
        return self._transport.call("GET", _path(snapshot))

    def tree(self, snapshot: str, path: str = "") -> SnapshotTree:
        return self._transport.call("GET", _path(snapshot, "/tree"), params={"path": path})

    def file(self, snapshot: str, path: str) -> SnapshotFile:
        return self._transport.call("GET", _path(snapshot, "/file"), params={"path": path})

    def diff(self, before: str, after: str) -> SnapshotDiff:
        return self._transport.call("GET", _path(after, "/diff"), params={"before": before})

    def manifest(self, snapshot: str) -> bytes:
        """The bytes whose SHA-256 the id is."""
        with self._transport.open(_path(snapshot, "/manifest")) as response:
            return response.read()

    def archive(self, snapshot: str, out: IO[bytes]) -> None:
        """All of it as a tar archive."""
        with self._transport.open(_path(snapshot, "/archive")) as response:
            for piece in response.iter_bytes(PIECE):
                out.write(piece)

    def fetch(self, url: str, *, revision: str = "HEAD", secret: str | None = None, project: str | None = None
              ) -> FetchItem:  # fmt: skip
        """Has the platform fetch a revision of a Git repository; see `fetched`."""
        body = {"projectId": project, "git": {"url": url, "revision": revision, "secret": secret}}
        return self._transport.call("POST", "/code/fetches", json=body)

    def fetched(self, fetch: str) -> FetchItem:
        return self._transport.call("GET", f"/code/fetches/{quote(fetch, safe='')}")

    def put(
        self,
        snapshot: str,
        manifest: bytes,
        contents: Mapping[str, tuple[int, Opened]],
        *,
        project: str | None = None,
        origin: Mapping[str, Any] | None = None,
        patch: str = "",
        said: Callable[[SnapshotMissing], None] = lambda missing: None,
    ) -> SnapshotItem:
        """Sends what the project has not got: `contents` has size and opener by SHA-256. Called again after it broke
        off, it goes on where it was."""
        params = {"project": project}
        missing: SnapshotMissing = self._transport.call(
            "PUT", _path(snapshot), params=params, content=lambda: iter([manifest]), headers=_stream(len(manifest))
        )
        said(missing)
        for pack in _packs(missing["missing"], contents):
            head = sum(size + len(f"{one} {size}\n") for one, size, _ in pack)
            self._transport.call(
                "PUT", _path(snapshot, "/blobs"), params=params, content=_content(pack), headers=_stream(head)
            )
        body = {"projectId": missing["projectId"], "origin": dict(origin or {}), "patch": patch}
        return self._transport.call("POST", _path(snapshot, "/finish"), json=body, repeatable=True)


Pack = Sequence[tuple[str, int, Opened]]


def _packs(missing: Iterable[str], contents: Mapping[str, tuple[int, Opened]]) -> Iterator[Pack]:
    pack: list[tuple[str, int, Opened]] = []
    total = 0
    for one in missing:
        size, opened = contents[one]
        if pack and total + size > TOGETHER:
            yield pack
            pack, total = [], 0
        pack.append((one, size, opened))
        total += size
    if pack:
        yield pack


def _content(pack: Pack) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        waiting = bytearray()
        for sha256, size, opened in pack:
            waiting += f"{sha256} {size}\n".encode()
            with opened() as file:
                while piece := file.read(PIECE):
                    waiting += piece
                    if len(waiting) >= PIECE:
                        yield bytes(waiting)
                        waiting.clear()
        yield bytes(waiting)

    return pieces


def _stream(length: int) -> dict[str, str]:
    return {"Content-Type": "application/octet-stream", "Content-Length": str(length)}


def _path(snapshot: str, rest: str = "") -> str:
    return f"/code/snapshots/{quote(snapshot, safe='')}{rest}"
