"""Checks before anything is started. Each failure is one sentence that says what to do."""

import errno
import os
import shutil
import socket
import tempfile
from pathlib import Path

from server import env, ldap_settings

MIN_FREE_BYTES = 200 * 1024 * 1024  # bytes


class StartupError(Exception):
    """The platform was not started; the message is for the operator at the terminal."""


def check_environment() -> None:
    """Check the environment variables, once for all processes. Raise StartupError."""
    try:
        env.check_settings()
        ldap_settings.read_ldap()
    except env.InvalidSettingError as wrong:
        raise StartupError(str(wrong)) from wrong


def prepare_data_dir(path: Path) -> Path:
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
            raise StartupError(_describe_full_disk(path, 0)) from error
        reason = os.strerror(error.errno or 0).lower()
        raise StartupError(
            f"The data directory {path} cannot be written to ({reason}): choose another with DATA=<directory>."
        ) from error
    if free < MIN_FREE_BYTES:
        raise StartupError(_describe_full_disk(path, free))
    return path


def _describe_full_disk(path: Path, free: int) -> str:
    need = MIN_FREE_BYTES // 2**20
    return (
        f"The disk of {path} is full ({free // 2**20} MB free, {need} MB needed): "
        "make room, or choose another place with DATA=<directory>."
    )


def check_address(host: str, port: int) -> None:
    """Check that the address can be listened on, in the way that the server will. Raise StartupError."""
    open_listening_socket(host, port, 1).close()


def open_listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on the address. Raise StartupError."""
    if not 0 < port < 65536:
        raise StartupError(f"{port} is not a port: choose one from 1 to 65535 with PORT=<number>.")
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise StartupError(f"{host} is not an address of this machine: choose another HOST.") from error
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(where)
        found.listen(backlog)
    except OSError as error:
        found.close()
        raise StartupError(_explain_bind_error(host, port, error)) from error
    return found


def _explain_bind_error(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use: stop what holds it, or choose another with PORT=<number>."
        case errno.EACCES:
            return f"Port {port} needs more rights than this user has: choose one above 1023 with PORT=<number>."
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine: choose another HOST."
        case _:
            return f"Cannot listen on {host}:{port}: {error.strerror}."
