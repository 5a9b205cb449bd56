"""Converts text to byte tokens: the `train.bin` / `val.bin` pair that the reference trainers memory-map.

One token is one byte of text, stored as a little-endian uint16, so any vocabulary up to 65,536 fits. Standard library
only: the platform and its workers tokenize without torch or numpy.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from fermi import messages

TOKEN_BYTES = 2
CHUNK_BYTES = 1 << 20
MAX_INSPECTED_BYTES = 2 << 20
SKIPPED_STDLIB_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}

Progress = Callable[[int, int], None]  # (done_bytes, total_bytes)
PathFilter = Callable[[Path], bool]
"""Returns whether a file may be read; called with its real path, links followed."""
SPECIAL_FILE_CODES = {
    stat.S_IFCHR: "DATA_IS_DEVICE",
    stat.S_IFBLK: "DATA_IS_DEVICE",
    stat.S_IFIFO: "DATA_IS_PIPE",
    stat.S_IFSOCK: "DATA_IS_SOCKET",
}


def allow_any_path(path: Path) -> bool:
    """Return True: any file may be read."""
    return True


class DataError(Exception):
    """Data that cannot be used, or a folder that cannot be written to. `code` and `params` select the message."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(code, params)
        self.code = code
        self.params = params

    def __str__(self) -> str:
        return " ".join(messages.render_text(self.code, "en", **self.params))


@dataclass(frozen=True)
class TokenizedPair:
    """A usable pair of token files. `size_bytes` and `sha256` cover the training data, then the validation data.
    `largest_token` is that of the first `MAX_INSPECTED_BYTES` of each file, as far as the trainers look, too."""

    train_path: Path
    valid_path: Path
    train_tokens: int
    valid_tokens: int
    size_bytes: int
    sha256: str
    largest_token: int


def iter_stdlib_files(max_bytes: int = 16 << 20) -> Iterator[Path]:
    """Yield the source files of the running Python's standard library, sorted by path, `max_bytes` in total at most."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in list_text_files(root, suffixes=(".py",), skipped=SKIPPED_STDLIB_FOLDERS):
        max_bytes -= path.stat().st_size
        if max_bytes < 0:
            return
        yield path


def list_text_files(folder: Path, suffixes: Collection[str] = (), skipped: Collection[str] = ()) -> list[Path]:
    """Return the regular files below `folder`, sorted by path.

    Hidden files, folders named in `skipped` and, if `suffixes` are given, files with no such suffix are left out.
    Raises DataError if a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    found = []
    with _convert_read_errors(folder):
        for parent, folders, names in os.walk(folder, onerror=refuse):
            folders[:] = [name for name in folders if name not in skipped and not name.startswith(".")]
            for name in names:
                path = Path(parent, name)
                wanted = not name.startswith(".") and (not suffixes or name.endswith(tuple(suffixes)))
                if wanted and path.is_file():
                    found.append(path)
    return sorted(found)


def tokenize_text(
    source: Path | Iterable[Path],
    out_dir: Path,
    *,
    valid_fraction: float = 0.1,
    suffixes: Collection[str] = (),
    progress: Progress | None = None,
    allowed: PathFilter = allow_any_path,
) -> TokenizedPair:
    """Write `out_dir`/train.bin and val.bin from a folder of text, one text file, or the files given.

    Each file goes to one side as a whole, chosen by a hash of its path, so that it stays on its side when other files
    are added or removed. If that leaves a side empty (few files), each file is cut: its head is for training, its tail
    for validation. Raises DataError; after that, and after a crash, `out_dir` has the old pair or no train.bin, never a
    mixed pair.
    """
    files, root = _list_source_files(source, suffixes)
    sizes = {path: _measure_file(path) for path in files}
    train_bytes, total = _split_sizes(sizes, root, valid_fraction), sum(sizes.values())
    if not 0 < sum(train_bytes.values()) < total:
        raise DataError("DATA_EMPTY", path=str(root))
    with _lock_output_folder(out_dir, total * TOKEN_BYTES) as folder:
        scratch = out_dir / ".tokenising"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            train, valid = scratch / "train.bin", scratch / "val.bin"
            _write_pair(train_bytes, total, train, valid, progress, allowed)
            made = _publish_pair(inspect_pair(train, valid), out_dir)
            os.fsync(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return made


def inspect_pair(
    train: Path, valid: Path, progress: Progress | None = None, allowed: PathFilter = allow_any_path
) -> TokenizedPair:
    """Check an existing pair and return its figures. Raises DataError when a file is missing, empty or cut short."""
    train_bytes, valid_bytes = _check_token_file(train), _check_token_file(valid)
    digest, done, total, largest = hashlib.sha256(), 0, train_bytes + valid_bytes, 0
    for path in (train, valid):
        for index, chunk in enumerate(_read_chunks(path, allowed)):
            digest.update(chunk)
            if index < MAX_INSPECTED_BYTES // CHUNK_BYTES:
                whole = len(chunk) - len(chunk) % TOKEN_BYTES
                largest = max(largest, *memoryview(chunk)[:whole].cast("H"))
            done += len(chunk)
            if progress:
                progress(min(done, total), total)
    return TokenizedPair(
        train_path=train,
        valid_path=valid,
        train_tokens=train_bytes // TOKEN_BYTES,
        valid_tokens=valid_bytes // TOKEN_BYTES,
        size_bytes=total,
        sha256=digest.hexdigest(),
        largest_token=largest,
    )


def _list_source_files(source: Path | Iterable[Path], suffixes: Collection[str]) -> tuple[list[Path], Path]:
    """Return the files, and the folder that their names are relative to."""
    if not isinstance(source, Path):
        files = list(source)
        return files, Path(os.path.commonpath([path.parent for path in files] or [Path()]))
    _measure_file(source)  # says what is wrong with a path that is not there or may not be read
    return (list_text_files(source, suffixes), source) if source.is_dir() else ([source], source.parent)


def _split_sizes(sizes: dict[Path, int], root: Path, valid_fraction: float) -> dict[Path, int]:
    """Return the number of bytes of each file that are for training; the rest is for validation."""

    def for_validation(path: Path) -> bool:
        name = path.relative_to(root).as_posix().encode()
        return int.from_bytes(hashlib.sha256(name).digest()[:8]) < valid_fraction * 2**64

    whole = {path: 0 if for_validation(path) else size for path, size in sizes.items()}
    if 0 < sum(whole.values()) < sum(sizes.values()):
        return whole
    return {path: min(max(size - 1, 0), round(size * (1 - valid_fraction))) for path, size in sizes.items()}


def _write_pair(
    train_bytes: dict[Path, int], total: int, train: Path, valid: Path, progress: Progress | None, allowed: PathFilter
) -> None:
    done = 0
    with train.open("wb") as train_file, valid.open("wb") as valid_file:
        for path, left in train_bytes.items():
            for chunk in _read_chunks(path, allowed):
                head = chunk[:left]
                train_file.write(_encode_tokens(head))
                valid_file.write(_encode_tokens(chunk[left:]))
                left -= len(head)
                done += len(chunk)
                if progress:
                    progress(min(done, total), total)
        for file in (train_file, valid_file):
            file.flush()
            os.fsync(file.fileno())


def _encode_tokens(text: bytes) -> bytearray:
    tokens = bytearray(TOKEN_BYTES * len(text))
    tokens[::TOKEN_BYTES] = text  # the low byte of each little-endian token
    return tokens


def _publish_pair(pair: TokenizedPair, out_dir: Path) -> TokenizedPair:
    """Move the pair into place. Without train.bin it is no pair, so the old train.bin is removed first and the new one
    moved last."""
    final = replace(pair, train_path=out_dir / "train.bin", valid_path=out_dir / "val.bin")
    final.train_path.unlink(missing_ok=True)
    pair.valid_path.rename(final.valid_path)
    pair.train_path.rename(final.train_path)
    return final


def _check_token_file(path: Path) -> int:
    size = _measure_file(path)
    if not size:
        raise DataError("DATA_EMPTY", path=str(path))
    if size % TOKEN_BYTES:
        raise DataError("DATA_ODD_SIZE", path=str(path), size_bytes=size)
    return size


def _measure_file(path: Path) -> int:
    with _convert_read_errors(path):
        info = path.stat()
    reject_special_file(path, info.st_mode)
    return info.st_size


def reject_special_file(path: Path, mode: int) -> None:
    """Raise DataError for a file that has no end (/dev/zero) or blocks its reader (a pipe)."""
    if code := SPECIAL_FILE_CODES.get(stat.S_IFMT(mode)):
        raise DataError(code, path=str(path))


def _read_chunks(path: Path, allowed: PathFilter) -> Iterator[bytes]:
    with _convert_read_errors(path), _open_file(path, allowed) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def _open_file(path: Path, allowed: PathFilter) -> Iterator[BinaryIO]:
    """Open a file and check its type and real path on the descriptor, which no one can swap for a link meanwhile."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
        reject_special_file(path, os.fstat(file.fileno()).st_mode)
        if not allowed(Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))):
            raise DataError("DATA_LEADS_OUTSIDE", path=str(path))
        yield file


@contextmanager
def _convert_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError("DATA_PATH_MISSING", path=str(path)) from None
    except OSError as error:
        raise DataError("DATA_UNREADABLE", path=str(path), reason=error.strerror) from error


@contextmanager
def _lock_output_folder(folder: Path, needed: int) -> Iterator[int]:
    """Create `folder`, check that `needed` bytes fit, and lock it: a second tokenizer waits for the first. Raises
    DataError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if shutil.disk_usage(folder).free < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(folder).free if folder.exists() else 0
            space = {"free_bytes": free, "needed_bytes": needed}
            raise DataError("DATA_NO_SPACE", path=str(folder), **space) from error
        raise DataError("DATA_NOT_WRITABLE", path=str(folder), reason=error.strerror) from error
