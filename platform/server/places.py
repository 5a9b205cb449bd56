"""Where things lie on disk. Standard library only: the supervisor and the settings both start from here."""

import hashlib
import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# sun_path holds 104 bytes on macOS and 108 on Linux, terminating zero included.
SOCKET_PATH_MAX = 100


def data_dir() -> Path:
    """FERMI_DATA, by default var/ in the repository; absolute, perhaps not there yet."""
    return Path(os.environ.get("FERMI_DATA") or ROOT / "var").expanduser().absolute()


def run_dir(data: Path) -> Path:
    """Sockets and pid files of the platform that serves `data`; mode 0700, perhaps not there yet.

    The name is a function of `data` alone, so that `manage.py` in another terminal finds the same
    broker; a path too long for a Unix socket moves to the temporary directory, one per user.
    """
    run = data / "run"
    if len(os.fsencode(run / "broker.sock")) <= SOCKET_PATH_MAX:
        return run
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"fermi-{os.getuid()}-{digest}"


def broker_url(data: Path) -> str:
    """The embedded broker's address, as redis-py spells it."""
    return f"unix://{run_dir(data) / 'broker.sock'}"
