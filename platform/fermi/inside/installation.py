r"""Installs packages into an environment on request of a member of its project. Standard library only, Python 3.9 or
later.

pip of the environment's own interpreter does it, or uv if that has no pip. The installation outlives the stream, so
that nothing is left half-installed; it holds a lock while it runs, so that a second one waits for the first. Installed
packages are left unchanged: the same request twice has the effect of one.

    ◀── {"of": "install", "output": "Collecting einops==0.8.0\n"}     as it is printed
    ◀── {"of": "install", "waiting": true}                            while another one runs, every few seconds
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from fermi.inside import interpreters, protocol, survey, user_processes

MAX_PACKAGES = 50
MAX_OUTPUT_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 1800.0
"""For the whole request, waiting included."""
POLL_SECONDS = 0.2
KEEPALIVE_SECONDS = 5.0
REQUIREMENT_PATTERN = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?(?:\[[A-Za-z0-9._,-]{1,100}\])?"
    r"(?:(?:===?|~=|!=|<=?|>=?)[A-Za-z0-9.*+!_-]{1,60}(?:,(?=[~!<>=]))?)*"
)
"""A name as pip reads it (PEP 508), with extras and versions; no option, path or address."""
SendMessage = Callable[[dict[str, Any]], None]


def install_packages(home: str, request: dict[str, Any], send: SendMessage) -> dict[str, Any]:
    """Install packages and return `exit`, pip's exit code. `packages`: requirements; `python`: as in a survey. Raises
    InsideRefusedError if there is no pip and no uv, or if it takes longer than TIMEOUT_SECONDS; ValueError for an
    invalid requirement."""
    packages = check_packages(request["packages"])
    python = survey.find_interpreter(str(request.get("python") or ""), interpreters.find_interpreters())
    command = [*build_command(python), "--", *packages]
    limit = time.monotonic() + TIMEOUT_SECONDS
    os.makedirs(home, 0o700, exist_ok=True)
    lock = os.open(os.path.join(home, "install.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        wait_for_lock(lock, limit, send)
        return {"exit": run_command(home, command, lock, limit, send), "python": python}
    finally:
        os.close(lock)


def check_packages(packages: Any) -> list[str]:
    """Return the packages. Raises ValueError for invalid ones."""
    if not isinstance(packages, list) or not 0 < len(packages) <= MAX_PACKAGES:
        raise ValueError(f"1 to {MAX_PACKAGES} packages")
    for one in packages:
        if not isinstance(one, str) or not REQUIREMENT_PATTERN.fullmatch(one):
            raise ValueError(f"no name and version of a package: {one!r}"[:200])
    return packages


def build_command(python: str) -> list[str]:
    """Return the command that installs into that interpreter, without the packages. Raises InsideRefusedError."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('pip') is None)"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", timeout=10,
            check=False,
        )  # fmt: skip
        if done.returncode == 0:
            quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
            return [python, "-m", "pip", "install", *quiet]
    home = os.path.expanduser("~")
    folders = [os.environ.get("PATH", os.defpath), f"{user_processes.get_prefix(python)}/bin", f"{home}/.local/bin"]
    if uv := shutil.which("uv", path=os.pathsep.join(folders)):
        return [uv, "pip", "install", "--no-progress", "--python", python]
    raise protocol.InsideRefusedError("INSIDE_NO_PIP", python=python)


def wait_for_lock(lock: int, limit: float, send: SendMessage) -> None:
    """Wait until no other installation runs here. Raises InsideRefusedError after `limit`."""
    told = 0.0
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        if time.monotonic() > limit:
            raise protocol.InsideRefusedError("INSIDE_INSTALL_SLOW", seconds=round(TIMEOUT_SECONDS))
        if time.monotonic() >= told:
            send({"of": "install", "waiting": True})
            told = time.monotonic() + KEEPALIVE_SECONDS
        time.sleep(POLL_SECONDS)


def run_command(home: str, command: Sequence[str], lock: int, limit: float, send: SendMessage) -> int:
    """Run the command to its end, report its output, and return its exit code. It holds the lock, too. Raises
    InsideRefusedError after `limit`."""
    log = os.path.join(home, "install.log")
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=written, stderr=written, cwd="/", start_new_session=True,
            pass_fds=[lock],
        )  # fmt: skip
    finally:
        os.close(written)
    told, silent_at, decoder = 0, time.monotonic() + KEEPALIVE_SECONDS, codecs.getincrementaldecoder("utf-8")("replace")
    with open(log, "rb") as said:
        while True:
            code = process.poll()
            while told < MAX_OUTPUT_BYTES and (piece := said.read(CHUNK_BYTES)):
                told += len(piece)
                silent_at = time.monotonic() + KEEPALIVE_SECONDS
                send({"of": "install", "output": decoder.decode(piece)})
            if code is not None:
                return code
            if time.monotonic() > limit:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise protocol.InsideRefusedError("INSIDE_INSTALL_SLOW", seconds=round(TIMEOUT_SECONDS))
            if time.monotonic() >= silent_at:
                send({"of": "install", "output": ""})
                silent_at = time.monotonic() + KEEPALIVE_SECONDS
            time.sleep(POLL_SECONDS)
