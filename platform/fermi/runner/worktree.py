"""The working tree of a task: the folder that its ranks start in, shared by all its attempts and all its nodes.
Standard library only, Python 3.9 or later.

    <tree>             the snapshot's files, and what the ranks have written next to them
    <tree>.manifest    the snapshot's manifest: files that are not in it are new
    <tree>.attempt     the attempt that the tree was set up for; later changes were made by its ranks
    <tree>.lock        held while it is set up; <tree>.packages.lock while packages are built in it

The first node of an attempt sets the tree up, the others wait for it. Files of the snapshot that are missing or differ
are written again; other files stay. A folder in place of one of the snapshot's files stays, too, because everything in
it is new. A checkpoint that the script is to find by itself, and that another task's tree has, is copied to the same
place, unless something is there.

The ranks may have put links and pipes anywhere in the tree, and the process that sets it up may have more rights than
they. So every folder on the way to a file is opened from the one above it, and no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from fermi.runner import code
from fermi.runner.code import ARCHIVE_NAME, CHUNK_BYTES, CodeDeliveryError, SnapshotFile
from fermi.runner.files import write_bytes_atomically

PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TreeOwner(NamedTuple):
    """The user that the ranks run as, if it is not the one that sets the tree up."""

    uid: int
    gid: int


def check_out_tree(
    folder: str, snapshot: str, tree: str, attempt: str, owner: TreeOwner | None = None, *, checkpoint: str = ""
) -> None:
    """Set `tree` up for an attempt, once, from the folder that has the snapshot. Raises CodeDeliveryError; a tree that
    did not exist before then does not exist either. `checkpoint`: a path; if it is in another task's tree, it is copied
    to the same place of this one."""
    files = code.read_manifest(folder, snapshot)
    try:
        os.makedirs(os.path.dirname(tree), exist_ok=True)
        with lock_tree(tree):
            if is_set_up(tree, attempt):
                return
            is_new = not os.path.lexists(tree)
            try:
                _update_tree(files, os.path.join(folder, ARCHIVE_NAME), tree, owner)
                _copy_checkpoint(checkpoint, tree, owner)
            except BaseException:
                if is_new:
                    shutil.rmtree(tree, ignore_errors=True)
                raise
            write_bytes_atomically(f"{tree}.attempt", attempt.encode())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = f"{'the disk is full: ' if full else ''}{error.strerror or error}"
        raise CodeDeliveryError("CODE_NOT_UNPACKED", path=error.filename or tree, why=why) from error


def is_set_up(tree: str, attempt: str) -> bool:
    """Return True if `tree` is set up for the attempt."""
    return _read_bytes(f"{tree}.attempt") == attempt.encode()


@contextlib.contextmanager
def lock_tree(tree: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let one process at a time, of all nodes, run the block; `on_wait` is called if another has the lock. If the file
    system has no locks, several may set the same tree up: each file is moved to its place as a whole."""
    lock = os.open(f"{tree}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _update_tree(files: list[SnapshotFile], archive: str, tree: str, owner: TreeOwner | None) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(tree)
        if owner:
            os.chown(tree, *owner, follow_symlinks=False)
    with _OpenFolders(tree, owner) as folders:
        wanted = {one.path for one in files if not _is_current(folders, one)}
        if wanted:
            try:
                with open(archive, "rb") as stream:
                    for one, content in code.read_entries(stream, files, archive):
                        if one.path in wanted:
                            _put_file(folders, tree, one, content, archive)
            except FileNotFoundError as error:
                if error.filename != archive:
                    raise
                raise CodeDeliveryError("CODE_ARCHIVE_MISSING", path=archive) from error
    write_bytes_atomically(f"{tree}.manifest", code.serialize_manifest(files))


class _OpenFolders:
    """Opens folders in a tree, and keeps the last one open."""

    def __init__(self, tree: str, owner: TreeOwner | None) -> None:
        self.tree, self.owner = tree, owner
        self._path, self._open = "", _open_folder(tree)

    def __enter__(self) -> _OpenFolders:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._open)

    def open_parent(self, path: str, *, make: bool = False) -> int:
        """Return the descriptor of the folder that `path` is in. With `make` it is created, in place of what is no
        folder. Raises OSError; without `make`, also if something on the way is no folder."""
        above = path.rpartition("/")[0]
        if above == self._path:
            return self._open
        there = _open_folder(self.tree)
        try:
            for name in above.split("/") if above else ():
                below = self._enter(there, name, make)
                os.close(there)
                there = below
        except BaseException:
            os.close(there)
            raise
        os.close(self._open)
        self._path, self._open = above, there
        return there

    def _enter(self, there: int, name: str, make: bool) -> int:
        try:
            return _open_folder(name, there)
        except FileNotFoundError:
            if not make:
                raise
        except OSError as error:
            if not make or error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            os.unlink(name, dir_fd=there)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=there)
        found = os.open(name, FOLDER_FLAGS, dir_fd=there)
        if self.owner:
            os.fchown(found, *self.owner)
        return found


def _open_folder(name: str, there: int | None = None) -> int:
    """Open a folder. If it is our own, ranks of the same user may have removed its permissions: its owner gets them
    back."""
    place = os.open(name, PATH_FLAGS, dir_fd=there)
    try:
        found = os.fstat(place)
        if found.st_uid == os.geteuid() and found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
    finally:
        os.close(place)
    return os.open(name, FOLDER_FLAGS, dir_fd=there)


def _is_current(folders: _OpenFolders, wanted: SnapshotFile) -> bool:
    """Return True if the tree has this file of the snapshot unchanged, or a folder in its place."""
    name = wanted.path.rpartition("/")[2]
    try:
        there = folders.open_parent(wanted.path)
        found = os.stat(name, dir_fd=there, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            return True
        if wanted.link:
            return stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=there) == wanted.link
        if (stat.S_IFMT(found.st_mode), found.st_size) != (stat.S_IFREG, wanted.size):
            return False
        with open(os.open(name, FILE_FLAGS, dir_fd=there), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            return mode == stat.S_IFREG | wanted.mode and _hash_file(file) == wanted.sha256
    except OSError:
        return False


def _hash_file(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(CHUNK_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _put_file(folders: _OpenFolders, tree: str, file: SnapshotFile, content: Any, archive: str) -> None:
    """Write a file next to the tree, where no rank writes, and move it to its place."""
    there, name = folders.open_parent(file.path, make=True), file.path.rpartition("/")[2]
    made = f"{tree}.new-{os.urandom(8).hex()}"
    try:
        if file.link:
            os.symlink(file.link, made)
        else:
            code.write_file(made, file, content, archive)
        if folders.owner:
            os.chown(made, *folders.owner, follow_symlinks=False)
        os.rename(made, name, dst_dir_fd=there)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


def _copy_checkpoint(path: str, tree: str, owner: TreeOwner | None) -> None:
    """Copy a checkpoint, a file or a folder, from another task's tree to the same place in this one, if nothing is
    there. A path that is elsewhere, or gone, changes nothing."""
    trees, name = os.path.dirname(os.path.dirname(tree)), os.path.basename(tree)
    task, _, rest = os.path.relpath(path, trees).partition("/") if os.path.isabs(path) else ("", "", "")
    inside = rest.removeprefix(f"{name}/")
    if not task or task in (os.pardir, os.path.basename(os.path.dirname(tree))) or not inside or inside == rest:
        return
    last, made = os.path.basename(inside), f"{tree}.new-{os.urandom(8).hex()}"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _open_above(trees, task, name, inside) as source:
        os.stat(last, dir_fd=source, follow_symlinks=False)
        with _OpenFolders(tree, owner) as folders:
            there = folders.open_parent(inside, make=True)
            if _has_entry(last, there):
                return
            try:
                _copy_entry(last, source, made, owner)
                os.rename(made, last, dst_dir_fd=there)
            except BaseException:
                _remove_entry(made)
                raise


def _has_entry(name: str, there: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=there, follow_symlinks=False)
        return True
    return False


def _remove_entry(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(path)


@contextlib.contextmanager
def _open_above(trees: str, task: str, name: str, inside: str) -> Iterator[int]:
    """Open the folder that `inside` of a task's tree is in, without following a link."""
    there = os.open(trees, FOLDER_FLAGS)
    try:
        for part in (task, name, *inside.split("/")[:-1]):
            below = os.open(part, FOLDER_FLAGS, dir_fd=there)
            os.close(there)
            there = below
        yield there
    finally:
        os.close(there)


def _copy_entry(name: str, there: int, target: str, owner: TreeOwner | None) -> None:
    """Copy a file, or a folder with its files and folders, from the folder `there`. Links and pipes are left out."""
    mode = os.stat(name, dir_fd=there, follow_symlinks=False).st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return
    source = os.open(name, FILE_FLAGS, dir_fd=there)
    try:
        if stat.S_ISDIR(mode):
            os.mkdir(target)
            for below in os.listdir(source):
                _copy_entry(below, source, os.path.join(target, below), owner)
        else:
            with open(source, "rb", closefd=False) as file, open(target, "xb") as copy:
                shutil.copyfileobj(file, copy, CHUNK_BYTES)
        if owner:
            os.chown(target, *owner, follow_symlinks=False)
    finally:
        os.close(source)


def _read_bytes(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read()
    return b""
