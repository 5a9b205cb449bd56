"""Starts, keeps and uses the standby process of an environment, which has the training stack imported
(`fermi.runner.standby`). Standard library only, Python 3.9 or later.

    <home>/standby/<key>/     one for each life of the container, interpreter and bundle; at most one lives

If it is gone, outdated, or does not answer, an attempt starts without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.inside import container_life, interpreters, survey
from fermi.runner import channel, processes

START_TIMEOUT_SECONDS = 20.0
"""How long a request waits for a new one to import everything."""
ORDER_TIMEOUT_SECONDS = 5.0
"""How long an attempt waits for one that imports, before it starts without."""
MAX_UNUSED_SECONDS = 86_400.0
POLL_SECONDS = 0.02
MAX_MODULES, MAX_NAME_LENGTH = 20, 100
_BUNDLE = Path(__file__).resolve().parents[2]


def get_standby_folder(home: str, python: str) -> Path:
    """Return the folder of the standby process for this interpreter, in this life of the container."""
    named = "\n".join((container_life.read_container_life(), python, _BUNDLE.name, str(os.getuid())))
    return Path(home) / "standby" / hashlib.sha256(named.encode()).hexdigest()[:20]


def build_runner_env() -> dict[str, str]:
    """Return the variables of node runners and standby processes."""
    path = os.pathsep.join(filter(None, [str(_BUNDLE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


def keep_standby(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the standby process, which is started if there is none: `state`, and `memory` in bytes, or
    why there is none as `code` and `params`. `python`: as in a survey; `modules`: what it imports; `seconds`: after so
    long without a request it ends, 0: at once; `yields`: its priority. Raises OSError and InsideRefusedError."""
    seconds = float(request["seconds"])
    modules = [str(name)[:MAX_NAME_LENGTH] for name in request["modules"]][:MAX_MODULES]
    if not seconds > 0:
        end_other_standbys(home, None)
        return {"state": "off"}
    python = (
        survey.find_interpreter(str(request.get("python") or ""), interpreters.find_interpreters()) or sys.executable
    )
    folder = get_standby_folder(home, python)
    end_other_standbys(home, folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    asked = {"modules": modules, "seconds": seconds, "yields": request.get("yields") or {}}
    since, limit = time.time(), time.monotonic() + START_TIMEOUT_SECONDS
    process: subprocess.Popen[bytes] | None = None
    while time.monotonic() < limit:
        said = channel.read_state(str(folder))
        if said and said["state"] == channel.STANDING_BY:
            with contextlib.suppress(OSError, ValueError):
                answer = send_order(folder, said, {"ask": "keep"}, START_TIMEOUT_SECONDS)
                if answer.get("ok") is True:
                    return {"state": channel.STANDING_BY, "memory": answer.get("memory"), "python": python}
        elif said and said["state"] == channel.UNUSABLE and said["at"] >= since:
            return {"state": channel.UNUSABLE, "code": said.get("code"), "params": said.get("params"), "python": python}
        elif not said or said["state"] == channel.UNUSABLE:
            code = process.poll() if process else 0
            if code:
                return describe_failed_start(folder, python)
            if code == 0:  # none was begun, or another one was faster, and has ended since
                process = start_standby(folder, python, asked)
        time.sleep(POLL_SECONDS)
    return {"state": channel.IMPORTING, "python": python}


def describe_failed_start(folder: Path, python: str) -> dict[str, Any]:
    """Return why the started one has ended."""
    why = ""
    with contextlib.suppress(OSError):
        why = (folder / "log").read_bytes()[-300:].decode(errors="replace").strip()
    return {"state": channel.UNUSABLE, "code": "STANDBY_FAILED", "params": {"why": why}, "python": python}


def is_standing_by(home: str, python: str) -> bool:
    """Return True if a standby process is ready for this interpreter."""
    said = channel.read_state(str(get_standby_folder(home, python)))
    return said is not None and said["state"] == channel.STANDING_BY


def has_standby(home: str) -> bool:
    """Return True if a standby process is ready for any interpreter."""
    states = (channel.read_state(str(folder)) for folder in Path(home, "standby").glob("*"))
    return any(said is not None and said["state"] == channel.STANDING_BY for said in states)


def start_standby(folder: Path, python: str, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start a standby process, which outlives the stream. Raises OSError."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            [python, "-u", "-m", "fermi.runner.standby", str(folder), json.dumps(settings)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=build_runner_env(), start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(log)


def delegate_start(home: str, python: str, spec: Path, secrets: Mapping[str, str]) -> bool:
    """Have the standby process start the node's runner, and return whether it has. Never raises."""
    folder = get_standby_folder(home, python)
    with contextlib.suppress(OSError, ValueError):
        said = channel.read_state(str(folder))
        if said is None or said["state"] == channel.UNUSABLE:
            return False
        order = {"ask": "begin", "spec": str(spec), "secrets": dict(secrets), "env": build_runner_env()}
        return send_order(folder, said, order, ORDER_TIMEOUT_SECONDS).get("ok") is True
    return False


def send_order(folder: Path, state: Mapping[str, Any], order: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the answer to an order. Raises OSError if the process is gone or silent, and ValueError if another one
    listens."""
    with channel.connect_socket(str(folder), seconds) as stream:
        if channel.read_peer_pid(stream) != state["pid"]:
            raise ValueError("another process listens")
        channel.send_message(stream, order)
        return channel.receive_message(stream)


def end_other_standbys(home: str, except_folder: Path | None) -> None:
    """End those of this container that have another interpreter or an older bundle, and remove old folders."""
    for folder in Path(home, "standby").glob("*"):
        if folder == except_folder:
            continue
        said = channel.read_state(str(folder))
        if said and said["state"] != channel.UNUSABLE:
            if (
                processes.read_process_name(said["pid"]) == channel.PROCESS_NAME
            ):  # a home that is shared may tell of another container's
                with contextlib.suppress(OSError):
                    processes.send_signal(said, signal.SIGTERM)
        elif is_old(folder):
            shutil.rmtree(folder, ignore_errors=True)


def is_old(folder: Path) -> bool:
    """Return True if the folder was not used for long."""
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime < time.time() - MAX_UNUSED_SECONDS
    return False
