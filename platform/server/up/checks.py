"""Checks before anything is started. Each failure is one sentence that says what to do."""

import errno
import os
import shutil
import socket
import tempfile
from pathlib import Path

from server import env

SPACE_NEEDED = 200 * 1024 * 1024  # bytes


class CannotStart(Exception):
    """The platform was not started; the message is for the operator at the terminal."""


def environment() -> None:
    """Check the environment variables, once for all processes. Raise StartupError."""
    try:
        env.check()
    except env.Wrong as wrong:
        raise CannotStart(str(wrong)) from wrong


def data_dir(path: Path) -> Path:
    """Create the data directory if needed and check that it can be written to and has free space. Return it. Raise
    StartupError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"x" * 4096)
            probe.flush()
        free = shutil.disk_usage(path).free
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise CannotStart(_full(path, 0)) from error
        reason = os.strerror(error.errno or 0).lower()
        raise CannotStart(
            f"The data directory {path} cannot be written to ({reason}): choose another with DATA=<directory>."
        ) from error
    if free < SPACE_NEEDED:
        raise CannotStart(_full(path, free))
    return path


def _full(path: Path, free: int) -> str:
    need = SPACE_NEEDED // 2**20
    return (
        f"The disk of {path} is full ({free // 2**20} MB free, {need} MB needed): "
        "make room, or choose another place with DATA=<directory>."
    )


def address(host: str, port: int) -> None:
    """Check that the address can be listened on, in the way that the server will. Raise StartupError."""
    listening(host, port, 1).close()


def listening(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on the address. Raise StartupError."""
    if not 0 < port < 65536:
        raise CannotStart(f"{port} is not a port: choose one from 1 to 65535 with PORT=<number>.")
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise CannotStart(f"{host} is not an address of this machine: choose another HOST.") from error
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(where)
        found.listen(backlog)
    except OSError as error:
        found.close()
        raise CannotStart(_refused(host, port, error)) from error
    return found


def _refused(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use: stop what holds it, or choose another with PORT=<number>."
        case errno.EACCES:
            return f"Port {port} needs more rights than this user has: choose one above 1023 with PORT=<number>."
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine: choose another HOST."
        case _:
            return f"Cannot listen on {host}:{port}: {error.strerror}."
