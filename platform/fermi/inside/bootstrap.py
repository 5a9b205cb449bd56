"""The first program inside of an environment: its text is sent to a Python that executes its input, with the arguments
`<hash> <module> …`.

Unpacks the bundle of that hash, unless it is unpacked already, and runs a module of it. Standard library only, Python
3.9 or later; it must not import anything of the bundle. Before the module runs, one line may be written:

    fermi: send           the bundle is needed: a line with its length in bytes, and so many bytes
    fermi: no room        there is no writable folder that only this user can change
    fermi: old 3.8.10     this Python is too old
"""

from __future__ import annotations

import hashlib
import io
import os
import runpy
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

FOLDER_NAME = ".fermi"
MIN_PYTHON = (3, 9)
MAX_UNUSED_SECONDS = 30 * 86_400.0
"""Bundles that were not used for so long are removed when another one is unpacked."""


def list_candidates(env: Mapping[str, str]) -> Iterator[str]:
    """Yield $FERMI_HOME, the user's home, and folders that are writable in most containers."""
    if env.get("FERMI_HOME"):
        yield env["FERMI_HOME"]
    home = env.get("HOME") or os.path.expanduser("~")
    if home.startswith("/") and home != "/":
        yield os.path.join(home, FOLDER_NAME)
    for folder in (env.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):
        if folder and folder.startswith("/"):
            yield os.path.join(folder, f"fermi-{os.getuid()}")


def choose_folder(env: Mapping[str, str]) -> str | None:
    """Return the first writable folder that only this user can change, or None."""
    return next((folder for folder in list_candidates(env) if is_usable(folder)), None)


def is_usable(folder: str) -> bool:
    """Return True if the folder is this user's. In /tmp above all, another user could have created it, and change what
    runs here."""
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        if found.st_mode & 0o022:
            os.chmod(folder, 0o700)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"fermi")
    except OSError:
        return False
    return True


def write_line(text: str) -> None:
    """Write a line for the platform."""
    sys.stdout.write(f"fermi: {text}\n")
    sys.stdout.flush()


def receive_bundle(digest: str) -> bytes:
    """Return the bundle. Raises ValueError if something else arrived."""
    write_line("send")
    size = int(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read(size)
    if hashlib.sha256(data).hexdigest()[: len(digest)] != digest:
        raise ValueError("what came is not the bundle")
    return data


def unpack_bundle(data: bytes, folder: str) -> None:
    """Unpack the bundle and rename it at once: another stream may do the same."""
    import tarfile  # most streams find it unpacked

    above = os.path.dirname(folder)
    os.makedirs(above, 0o700, exist_ok=True)
    for name in os.listdir(above):
        path = os.path.join(above, name)
        if os.lstat(path).st_mtime < time.time() - MAX_UNUSED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
    made = tempfile.mkdtemp(dir=above)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(made)
    try:
        os.rename(made, folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not os.path.isdir(folder):
            raise


def main(digest: str, module: str, *rest: str) -> None:
    """Run the module of the bundle, or write why that is not possible."""
    home = choose_folder(os.environ)
    if tuple(sys.version_info) < MIN_PYTHON:
        write_line(f"old {sys.version.split()[0]}")
    elif home is None:
        write_line("no room")
    else:
        run_module(home, digest, module, rest)


def run_module(home: str, digest: str, module: str, rest: Sequence[str]) -> None:
    """Run the module of the bundle, which is requested if it is missing. The token of an environment daemon is removed
    from the variables: ranks must not have it."""
    os.environ.pop("FERMI_KEEPER_TOKEN", None)
    folder = os.path.join(home, "bundles", digest)
    if not os.path.isdir(folder):
        unpack_bundle(receive_bundle(digest), folder)
    os.utime(folder)
    sys.path[0] = folder
    sys.argv = [module, home, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
