"""Snapshots of projects' code: upload and download."""

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

MAX_PACK_BYTES = 24 << 20
"""Maximum bytes of contents in one request; a larger file is sent alone."""
CHUNK_BYTES = 1 << 20

ContentOpener = Callable[[], IO[bytes]]


class Code:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def limits(self) -> CodeLimits:
        """Return the limits of a snapshot: number of files, MB of one file, MB in all."""
        return self._transport.call("GET", "/code/limits")

    def list(self, *, project: str | None = None) -> Listing[SnapshotItem]:
        return Listing(self._transport, "/code/snapshots", {"project": project})

    def get(self, snapshot: str) -> SnapshotItem:
        """Return a snapshot, by its id or a unique prefix of it."""
        return self._transport.call("GET", _path(snapshot))

    def tree(self, snapshot: str, path: str = "") -> SnapshotTree:
        return self._transport.call("GET", _path(snapshot, "/tree"), params={"path": path})

    def file(self, snapshot: str, path: str) -> SnapshotFile:
        return self._transport.call("GET", _path(snapshot, "/file"), params={"path": path})

    def diff(self, before: str, after: str) -> SnapshotDiff:
        return self._transport.call("GET", _path(after, "/diff"), params={"before": before})

    def manifest(self, snapshot: str) -> bytes:
        """Return the manifest, the bytes whose SHA-256 is the snapshot's id."""
        with self._transport.open(_path(snapshot, "/manifest")) as response:
            return response.read()

    def archive(self, snapshot: str, out: IO[bytes]) -> None:
        """Write the whole snapshot to `out` as a tar archive."""
        with self._transport.open(_path(snapshot, "/archive")) as response:
            for piece in response.iter_bytes(CHUNK_BYTES):
                out.write(piece)

    def fetch(self, url: str, *, revision: str = "HEAD", secret: str | None = None, project: str | None = None
              ) -> FetchItem:  # fmt: skip
        """Start a fetch of a revision of a Git repository by the platform; `fetched` returns its state."""
        body = {"projectId": project, "git": {"url": url, "revision": revision, "secret": secret}}
        return self._transport.call("POST", "/code/fetches", json=body)

    def fetched(self, fetch: str) -> FetchItem:
        """Return the state of a fetch."""
        return self._transport.call("GET", f"/code/fetches/{quote(fetch, safe='')}")

    def put(
        self,
        snapshot: str,
        manifest: bytes,
        contents: Mapping[str, tuple[int, ContentOpener]],
        *,
        project: str | None = None,
        origin: Mapping[str, Any] | None = None,
        patch: str = "",
        said: Callable[[SnapshotMissing], None] = lambda missing: None,
    ) -> SnapshotItem:
        """Upload the contents that the project lacks and return the snapshot. `contents`: size and opener by SHA-256.
        `said` is called once with what is missing. After an interruption, calling it again uploads only the rest."""
        params = {"project": project}
        missing: SnapshotMissing = self._transport.call(
            "PUT",
            _path(snapshot),
            params=params,
            content=lambda: iter([manifest]),
            headers=_make_stream_headers(len(manifest)),
        )
        said(missing)
        for pack in _group_contents(missing["missing"], contents):
            head = sum(size + len(f"{one} {size}\n") for one, size, _ in pack)
            self._transport.call(
                "PUT",
                _path(snapshot, "/blobs"),
                params=params,
                content=_stream_pack(pack),
                headers=_make_stream_headers(head),
            )
        body = {"projectId": missing["projectId"], "origin": dict(origin or {}), "patch": patch}
        return self._transport.call("POST", _path(snapshot, "/finish"), json=body, repeatable=True)


ContentPack = Sequence[tuple[str, int, ContentOpener]]


def _group_contents(missing: Iterable[str], contents: Mapping[str, tuple[int, ContentOpener]]) -> Iterator[ContentPack]:
    pack: list[tuple[str, int, ContentOpener]] = []
    total = 0
    for one in missing:
        size, opened = contents[one]
        if pack and total + size > MAX_PACK_BYTES:
            yield pack
            pack, total = [], 0
        pack.append((one, size, opened))
        total += size
    if pack:
        yield pack


def _stream_pack(pack: ContentPack) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        waiting = bytearray()
        for sha256, size, opened in pack:
            waiting += f"{sha256} {size}\n".encode()
            with opened() as file:
                while piece := file.read(CHUNK_BYTES):
                    waiting += piece
                    if len(waiting) >= CHUNK_BYTES:
                        yield bytes(waiting)
                        waiting.clear()
        yield bytes(waiting)

    return pieces


def _make_stream_headers(length: int) -> dict[str, str]:
    return {"Content-Type": "application/octet-stream", "Content-Length": str(length)}


def _path(snapshot: str, rest: str = "") -> str:
    return f"/code/snapshots/{quote(snapshot, safe='')}{rest}"
