"""Starts the daemon of one run of an environment:

    python -m fermi.envd SPEC.json [-]         `-`: reads variables that are in no file from standard input (JSON)
    python -m fermi.envd SPEC.json SECRETS     reads them from a file, and removes it

Exits as soon as the daemon listens, or if there is one already; the daemon itself is detached. With `"foreground":
true` in the spec it stays in the foreground: as the main process of a container, or of a job. Next to the spec are
`SPEC.lock` (one daemon at a time), `.status.json`, `.log`, `.sock`, `.token`; in the same folder `stop.json`.

    {"name": "env-x-1", "kind": "jupyter", "workspace": "/…", "home": "/…", "service": "/…", "cache": "/…",
     "tools": "/…", "python": "python", "own": "/…", "lab": "python", "packages": [], "env": {},
     "ports": [{"name": "board", "port": 6006}], "start_script": "",
     "lazy": true, "grace_seconds": 10, "tcp": null, "bounds": {…}, "confine": {…}, "preparing": {…}}

`service`: a folder of the run that its processes may write to. `cache`: of prepared packages; `tools`: where an editor
is installed. `lab`: the interpreter that has JupyterLab; `python`: what kernels and commands run in. `own`: the folder
of the environment's own interpreter, which is created on top of that and replaces it (`interpreter.py`). `lazy`: the
service starts when it is first used. `tcp`: a port on loopback to listen on in addition to the socket (0 = any; the
actual one is in `SPEC.port`). `termination_message`: a file into which a daemon in a container writes why its service
failed; it then exits with 1, and one that is started again afterwards waits for its end. `stop`: where the stop request
is, if not next to the spec. `bounds`: what processes may use of the machine (see `fermi.runner.bounds`), and of its
disk workspace, home and the run's folder (`fermi.runner.disk_usage`). `confine`: the sandbox of processes, and
`preparing`: that of the installation of packages (see `fermi.runner.sandbox`). The first line of each connection has
the token: that of FERMI_KEEPER_TOKEN, or the one in `.token`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from fermi.envd import server
from fermi.envd.port_forward import build_socket_path
from fermi.envd.supervisor import EnvironmentDaemon, build_disk_monitor
from fermi.runner import files, processes

SOCKET_SUFFIX, TOKEN_SUFFIX, PORT_SUFFIX = ".sock", ".token", ".port"


def main(path: str, variables: Mapping[str, str]) -> int:
    """Run the daemon and return the exit code: 1 if its service could not go on and its container has to report why,
    else 0."""
    paths = files.RunnerPaths(path)
    with open(paths.spec, encoding="utf-8") as file:
        spec = json.load(file)
    paths.stop = spec.get("stop") or paths.stop
    lock = _acquire_lock(paths)
    if lock is None:
        return 0
    if _is_over(paths, spec):
        if spec.get("termination_message"):
            _wait_for_signal()
        return 0
    given = os.environ.pop("FERMI_KEEPER_TOKEN", "")
    token = given or _create_token(paths)
    for name in ("workspace", "home", "service", "cache", "tools"):  # what is not there cannot be allowed
        os.makedirs(spec[name], exist_ok=True)
    use = build_disk_monitor(spec, paths)
    refusal = use.refusal() if use else None
    listening = [] if refusal else _open_sockets(paths, spec)
    if not spec.get("foreground"):
        _detach(paths)
    processes.deny_tracing()
    keeper = EnvironmentDaemon(spec, paths, variables, token)
    if refusal:
        keeper.refuse(refusal)
        return 1 if spec.get("termination_message") else 0
    asyncio.run(keeper.live([partial(server.start_server, keeper, sock) for sock in listening]))
    return 1 if spec.get("termination_message") and keeper.failed else 0


def _wait_for_signal() -> None:
    """Wait for a signal. Kubernetes starts the container of an ended run again and again, and keeps only the last two
    of them. One that waits keeps the log and the message of the one that ran
    (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/, "Container restart policy")."""
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)


def _acquire_lock(paths: files.RunnerPaths) -> int | None:
    """Return the lock, or None if another daemon has it. A process that checks a run that has not started holds its
    lock for a moment, too."""
    for _ in range(20):
        if (lock := files.try_lock(paths.lock)) is not None:
            return lock
        time.sleep(0.05)
    return None


def _is_over(paths: files.RunnerPaths, spec: Mapping[str, Any]) -> bool:
    """Return True if the run was asked to end, or has ended; a lazy one that was killed may be started again on
    demand."""
    if files.read_json(paths.stop) is not None:
        return True
    before = files.read_json(paths.status)
    return before is not None and (not spec["lazy"] or before["state"] == "exited")


def _create_token(paths: files.RunnerPaths) -> str:
    """Return a new token, which is written before the daemon listens."""
    token = secrets.token_urlsafe(24)
    files.write_bytes_atomically(paths.spec.removesuffix(".json") + TOKEN_SUFFIX, token.encode(), 0o600)
    return token


def _open_sockets(paths: files.RunnerPaths, spec: Mapping[str, Any]) -> list[socket.socket]:
    """Return the listening sockets; the socket file of a dead daemon is replaced."""
    stem = paths.spec.removesuffix(".json")
    name = os.path.basename(stem) + SOCKET_SUFFIX
    folder = os.open(paths.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    before = os.umask(0o177)
    try:
        own.bind(build_socket_path(folder, name))
    finally:
        os.umask(before)
        os.close(folder)
    own.listen(128)
    found = [own]
    if spec.get("tcp") is not None:
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind(("127.0.0.1", int(spec["tcp"])))
        tcp.listen(128)
        files.write_bytes_atomically(stem + PORT_SUFFIX, str(tcp.getsockname()[1]).encode(), 0o600)
        found.append(tcp)
    return found


def _detach(paths: files.RunnerPaths) -> None:
    """Continue in a child with its own session; the parent exits, because the daemon listens."""
    if os.fork():
        os._exit(0)
    os.setsid()
    log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    os.chdir("/")


def _read_variables(words: list[str]) -> Mapping[str, str]:
    """Return the variables, before any other process of the environment runs that could read them."""
    if not words:
        return {}
    if words[0] == "-":
        return dict(json.load(sys.stdin))
    found = files.read_json(words[0]) or {}
    with contextlib.suppress(FileNotFoundError):
        os.unlink(words[0])
    return dict(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], _read_variables(sys.argv[2:])))
