"""Paths on disk. Standard library only: the supervisor and the settings both use it."""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# sun_path holds 104 bytes on macOS and 108 on Linux, terminating zero included.
MAX_SOCKET_PATH_BYTES = 100


def get_data_dir() -> Path:
    """Return FERMI_DATA, by default var/ in the repository; absolute, perhaps not created yet."""
    return Path(os.environ.get("FERMI_DATA") or ROOT / "var").expanduser().absolute()


def get_run_dir(data: Path) -> Path:
    """Return the folder of sockets and pid files of the platform that serves `data`; mode 0700, perhaps not created
    yet.

    Its name is a function of `data` alone, so that `manage.py` in another terminal finds the same broker; where the
    path is too long for a Unix socket it is in /tmp, one per user. Not in TMPDIR: that may be long itself, and differs
    between terminals.
    """
    run = data / "run"
    if len(os.fsencode(run / "broker.sock")) <= MAX_SOCKET_PATH_BYTES:
        return run
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return Path("/tmp") / f"fermi-{os.getuid()}-{digest}"


def list_private_paths(data: Path) -> list[str]:
    """Return the paths that training must not reach, in addition to the data directory: sockets of a data directory
    with a long path, what `fermi login` stores, and FERMI_PRIVATE."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fermi"
    more = [path for path in os.environ.get("FERMI_PRIVATE", "").split(os.pathsep) if path]
    return [str(get_run_dir(data)), str(config), *more]


def get_redis_url(data: Path) -> str:
    """Return REDIS_URL, else the embedded broker's URL."""
    return os.environ.get("REDIS_URL") or get_broker_url(data)


def get_broker_url(data: Path) -> str:
    """Return the embedded broker's URL, in redis-py's spelling."""
    run = get_run_dir(data)
    password = read_broker_password(run)
    return f"unix://{f':{password}@' if password else ''}{run / 'broker.sock'}"


def get_notes_path(run: Path) -> Path:
    """Return the path of the supervisor's notes on the platform's processes (`server.up.process_health`)."""
    return run / "notes.json"


def get_broker_config_path(run: Path) -> Path:
    """Return the path of the broker's configuration file with its password."""
    return run / "broker.conf"


def read_broker_password(run: Path) -> str:
    """Return the password of the broker that runs, or ran last; empty before the first start."""
    try:
        return get_broker_config_path(run).read_text("ascii").split()[1]
    except (OSError, IndexError):
        return ""
