"""Archives of many files as one stream, in chunks: nothing is collected in memory or on disk."""

import io
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

CHUNK_BYTES = 1 << 20
ArchiveFormat = Literal["tar", "zip"]
MEDIA_TYPES = {"tar": "application/x-tar", "zip": "application/zip"}


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A file of an archive; with `open` None a folder. `at` is in unix seconds."""

    name: str
    size: int
    at: float
    open: Callable[[], BinaryIO] | None


def stream_archive(form: ArchiveFormat, members: Iterable[ArchiveMember]) -> Iterator[bytes]:
    """Yield the archive. A file that was deleted meanwhile is left out; one that was cut is filled up with zeros, and
    one that grew ends at its listed size. The first file is opened before the first chunk, so that errors are raised
    early."""
    return _stream_tar(members) if form == "tar" else _stream_zip(members)


def _stream_tar(members: Iterable[ArchiveMember]) -> Iterator[bytes]:
    for member in members:
        head = tarfile.TarInfo(member.name)
        head.mtime, head.mode = member.at, 0o644
        if member.open is None:
            head.type, head.mode = tarfile.DIRTYPE, 0o755
            yield head.tobuf(tarfile.PAX_FORMAT)
            continue
        try:
            file = member.open()
        except OSError:
            continue
        head.size = member.size
        yield head.tobuf(tarfile.PAX_FORMAT)
        yield from _read_exactly(file, member.size)
        yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _read_exactly(file: BinaryIO, size: int) -> Iterator[bytes]:
    with file:
        while size > 0:
            piece = file.read(min(CHUNK_BYTES, size)) or b"\0" * min(CHUNK_BYTES, size)
            size -= len(piece)
            yield piece


class _ZipBuffer(io.RawIOBase):
    """Buffer that a zip file is written to: it is not seekable, and is emptied after each write."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = memoryview(data)  # type: ignore[arg-type]
        self._held += piece
        return piece.nbytes

    def taken(self) -> bytes:
        held = bytes(self._held)
        self._held.clear()
        return held


def _stream_zip(members: Iterable[ArchiveMember]) -> Iterator[bytes]:
    sink = _ZipBuffer()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for member in members:
            when = max(time.gmtime(member.at)[:6], (1980, 1, 1, 0, 0, 0))
            about = zipfile.ZipInfo(member.name + ("/" if member.open is None else ""), when)
            about.external_attr = (0o40755 << 16 | 0x10) if member.open is None else 0o100644 << 16
            if member.open is None:
                archive.writestr(about, b"")
                yield sink.taken()
                continue
            try:
                file = member.open()
            except OSError:
                continue
            with archive.open(about, "w", force_zip64=True) as into:
                for piece in _read_exactly(file, member.size):
                    into.write(piece)
                    yield sink.taken()
    yield sink.taken()
