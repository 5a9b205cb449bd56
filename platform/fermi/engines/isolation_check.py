"""Test of the isolation from inside: try what a task could do to the platform.

    python -m fermi.engines.isolation_check ORDER      in a process of its own, as a task would; prints a line of JSON

Each trial is of something that would let a task become the platform, or end it. What a trial has made is removed.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from fermi.engines.isolation import TOOLKIT, SandboxPaths, choose_isolation
from fermi.runner.sandbox import Sandbox

TIMEOUT_SECONDS = 60.0
TRIAL_FILE = ".fermi-isolation-check"
"""Name of files that a trial makes."""


class IsolationCheckError(Exception):
    """The trials could not be run; the text says why."""


@lru_cache
def find_open_paths(mode: str, paths: SandboxPaths) -> tuple[str, ...]:
    """Return what a task reached, each as "VERB PATH" ("write /usr/local/bin"); empty: the isolation holds. `mode`:
    FERMI_ISOLATION. Run once in a process. Raise IsolationCheckError."""
    isolation = choose_isolation(mode, paths)
    (paths.home / "runs").mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=TRIAL_FILE, dir=paths.home / "runs"))
    scratch.chmod(0o711)  # its own folder lies in there, and the task may be another user
    secret = paths.home / f"{TRIAL_FILE}-secret"
    try:
        secret.write_text("secret", encoding="ascii")
        secret.chmod(0o600)
        own = scratch / "own"
        order = isolation.order(paths, own=[own], readable=[], logs=scratch, home=own / "home")
        told = {"order": order, "own": str(own), "pid": os.getpid(), "secret": str(secret), **_list_targets(paths)}
        return _run_check(json.dumps(told))
    except OSError as error:
        raise IsolationCheckError(f"{error.filename}: {error.strerror}") from error
    finally:
        secret.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _list_targets(paths: SandboxPaths) -> dict[str, list[str]]:
    folders = [*os.environ.get("PATH", "").split(os.pathsep), str(Path.home()), str(Path.home() / ".ssh"), sys.prefix,
               sys.base_prefix, sysconfig.get_path("purelib"), str(TOOLKIT / "fermi"), "/etc", "/etc/profile.d",
               "/etc/cron.d", "/usr/lib", "/opt", "/var/spool/cron", str(paths.home)]  # fmt: skip
    uid = os.getuid()
    sockets = ["/run/docker.sock", "/run/podman/podman.sock", f"/run/user/{uid}/bus",
               f"/run/user/{uid}/systemd/private", f"/tmp/tmux-{uid}/default"]  # fmt: skip
    return {"folders": [path for path in dict.fromkeys(folders) if os.path.isdir(path)], "sockets": sockets}


def _run_check(order: str) -> tuple[str, ...]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fermi.engines.isolation_check"], input=order, capture_output=True, text=True,
            timeout=TIMEOUT_SECONDS, check=True, cwd="/", env={**os.environ, "PYTHONPATH": str(TOOLKIT)},
        )  # fmt: skip
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise IsolationCheckError(said[-1] if said else type(error).__name__) from error
    if found["failed"]:
        raise IsolationCheckError(found["failed"])
    return tuple(found["open"])


# --- inside ---


def _iterate_trials(order: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], object]]]:
    for folder in order["folders"]:
        yield f"write {folder}", lambda path=f"{folder}/{TRIAL_FILE}": _create_file(path)  # type: ignore[misc]
    yield f"read {order['secret']}", lambda: Path(order["secret"]).read_bytes()
    yield f"change {order['secret']}", lambda: os.chmod(order["secret"], 0o600)
    for path in order["sockets"]:
        yield f"connect {path}", lambda path=path: _connect(path)  # type: ignore[misc]
    yield f"signal {order['pid']}", lambda: os.kill(order["pid"], 0)
    yield f"read /proc/{order['pid']}/environ", lambda: Path(f"/proc/{order['pid']}/environ").read_bytes()
    yield f"write /proc/{order['pid']}/oom_score_adj", lambda: _open_for_writing(f"/proc/{order['pid']}/oom_score_adj")


def _create_file(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def _was_created(name: str) -> bool:
    """Return whether a file was really made, and remove it. Checked from outside: in a view of its own a task may make
    files that no other process sees."""
    verb, _, folder = name.partition(" ")
    path = os.path.join(folder, TRIAL_FILE)
    if verb != "write" or not os.path.isdir(folder):
        return True
    there = os.path.lexists(path)
    with suppress(OSError):
        os.unlink(path)
    return there


def _open_for_writing(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(path)


def _run_trials(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return what could be reached, and why a task could not do its own work (`failed`)."""
    found = []
    for name, attempt in _iterate_trials(order):
        with suppress(OSError):
            attempt()
            found.append(name)
    try:
        with tempfile.TemporaryFile(dir=order["own"]), tempfile.TemporaryFile():
            import venv  # noqa: F401 (a module of the interpreter that nothing has imported yet)
    except (OSError, ImportError) as error:
        return {"open": found, "failed": f"a task could not work: {error}"}
    return {"open": found, "failed": ""}


def main() -> int:
    """Run the trials in a sandboxed child and print the result as a line of JSON."""
    told = json.loads(sys.stdin.read())
    confinement = Sandbox(told["order"], "check", os.environ) if told["order"] else None
    os.makedirs(told["own"], exist_ok=True)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if confinement:
                confinement.enter(1)
                os.environ.update(confinement.env)
                tempfile.tempdir = None
            os.chdir("/")
            said = _run_trials(told)
        except BaseException as error:
            said = {"open": [], "failed": f"{type(error).__name__}: {error}"}
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as heard:
        said = json.loads(heard.read())
    os.waitpid(pid, 0)
    said["open"] = [name for name in said["open"] if _was_created(name)]
    print(json.dumps(said))
    if confinement:
        confinement.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
