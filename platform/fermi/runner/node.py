"""The node runner: starts one process per rank on this host, follows them to their end, and writes down what it sees.

    python node.py <spec.json>

It needs nothing but the standard library (Python 3.9 or later), keeps no connection to anybody, and outlives its
parent. Beside `<node>.json` (the spec) it keeps `<node>.lock` (held while it lives: one runner per spec, ever),
`<node>.status.json` (replaced atomically at each change) and looks for `stop.json` (a request to end:
`{"grace_seconds": 30}`).

    starting ─▶ running ─▶ exited          `exited` is written last, when no process of the node is left

The spec:

    {"name": "task-x-1", "node_rank": 0, "command": ["python", "train.py"], "cwd": "/…", "env": {"MASTER_ADDR": "…"},
     "ranks": [{"rank": 0, "local_rank": 0, "env": {"RANK": "0"}, "log": "/…/0.log"}],
     "stop_signal": "SIGTERM", "grace_seconds": 30, "fork": true}

`fork`: the ranks may be forked from this process instead of executed, and so inherit the modules that it (see
`template.py`) has imported. A forked rank then runs the script the way `python script.py` or `python -m module` does.

A rank's output goes straight from the rank into its log file, opened for append: the runner is not in the way, and
nothing is lost when it dies. A rank cannot outlive its runner (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import runpy
import select
import signal
import sys
import threading
import time
import types
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIBLINGS_GRACE_SECONDS = 5.0
"""How long the other ranks of a node get to end by themselves (and to print why) after one of them failed."""
STOP_POLL_SECONDS = 0.25

_libc = ctypes.CDLL(None, use_errno=True)


class BecomeRank(BaseException):
    """Raised in a forked child to unwind the runner's stack; the top of the program then runs the rank's script."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.command = command
        self.env = env


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`; None when there is no such process or it is a zombie. Together with
    the pid it names a process for ever (until the next boot)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def write_atomically(path: str, data: Any) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w") as file:
        json.dump(data, file)
    os.replace(temporary, path)


def read_json(path: str) -> Any:
    """None when it is absent or was torn by a crash of the machine."""
    try:
        with open(path) as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None


class Paths:
    def __init__(self, spec_path: str) -> None:
        stem = os.path.abspath(spec_path).removesuffix(".json")
        self.spec, self.lock, self.status, self.log = (stem + end for end in (".json", ".lock", ".status.json", ".log"))
        self.stop = os.path.join(os.path.dirname(stem), "stop.json")


def try_lock(path: str) -> int | None:
    """A file descriptor that holds the lock until it is closed or the process ends; None when another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return descriptor


def first_status(name: str, node_rank: int, state: str) -> dict[str, Any]:
    return {
        "name": name,
        "node_rank": node_rank,
        "state": state,
        "boot_id": boot_id(),
        "runner": None,
        "ranks": [],
    }


class Node:
    """One node's life. `ranks` are the entries of the status file, in order of local rank. `ends_on`: signals that ask
    it to end."""

    ends_on: tuple[signal.Signals, ...] = (signal.SIGTERM,)

    def __init__(self, spec: dict[str, Any], paths: Paths, lock: int) -> None:
        self.spec, self.paths, self.lock = spec, paths, lock
        self.status = first_status(spec["name"], spec["node_rank"], "starting")
        self.status["runner"] = {"pid": os.getpid(), "start_time": start_time(os.getpid())}
        self.ranks = self.status["ranks"] = [
            {"rank": r["rank"], "local_rank": r["local_rank"], "pid": None, "start_time": None, "state": "waiting",
             "exit_code": None, "ended_at": None} for r in spec["ranks"]
        ]  # fmt: skip
        self.kill_at: float | None = None  # monotonic seconds; set once the ranks have been asked to end
        self.stop_seen: dict[str, Any] | None = None

    def run(self) -> None:
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGUSR1, *self.ends_on):
            signal.signal(number, lambda *_: None)
        self.save("starting")
        if read_json(self.paths.stop) is None:
            for entry, rank in zip(self.ranks, self.spec["ranks"]):  # noqa: B905 (strict is newer than 3.9)
                self.start(entry, rank, inherited=(wake, wake_write, self.lock))
            self.save("running")
        while any(entry["state"] == "running" for entry in self.ranks):
            self.sleep(wake)
            self.drain(wake)
            self.obey_stop()
            self.reap()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.signal_ranks(signal.SIGKILL)
        self.sweep()
        self.save("exited")

    def save(self, state: str) -> None:
        self.status["state"] = state
        write_atomically(self.paths.status, self.status)

    def sleep(self, wake: int) -> None:
        """Until a signal comes, or it is time to look at something."""
        select.select([wake], [], [], self.seconds_to_sleep())

    def open_output(self, rank: dict[str, Any]) -> int:
        """A descriptor that takes what the rank prints."""
        return os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)

    def drain(self, wake: int) -> None:
        """Empties the wake-up pipe; a SIGTERM in it is a request to stop with the spec's own grace."""
        try:
            numbers = os.read(wake, 4096)
        except BlockingIOError:
            return
        for number in numbers:
            if number in self.ends_on:
                self.signalled(number)

    def signalled(self, number: int) -> None:
        self.ask_to_end(self.spec["grace_seconds"])

    def seconds_to_sleep(self) -> float:
        return (
            STOP_POLL_SECONDS
            if self.kill_at is None
            else min(STOP_POLL_SECONDS, max(0.0, self.kill_at - time.monotonic()))
        )

    def start(self, entry: dict[str, Any], rank: dict[str, Any], inherited: tuple[int, ...]) -> None:
        env = {**os.environ, **self.spec["env"], **rank["env"]}
        log = self.open_output(rank)
        runner = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != runner:
                    os._exit(1)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGPIPE):
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                nothing = os.open(os.devnull, os.O_RDONLY)
                for source, target in ((nothing, 0), (log, 1), (log, 2)):
                    os.dup2(source, target)
                for descriptor in (*inherited, nothing, log):
                    os.close(descriptor)
                os.chdir(self.spec["cwd"])
            except BaseException as error:
                os.write(2, f"fermi: rank {rank['rank']} could not be set up: {error}\n".encode())
                os._exit(126)
            raise (
                BecomeRank(self.spec["command"], env) if self.spec.get("fork") else _execute(self.spec["command"], env)
            )
        os.close(log)
        entry.update(pid=pid, start_time=start_time(pid), state="running")

    def obey_stop(self) -> None:
        stop = read_json(self.paths.stop)
        if stop is not None and stop != self.stop_seen:
            self.stop_seen = stop
            self.ask_to_end(stop["grace_seconds"])

    def ask_to_end(self, grace_seconds: float) -> None:
        """Sends the stop signal once; a later, shorter grace brings the kill forward."""
        kill_at = time.monotonic() + grace_seconds
        if self.kill_at is None:
            self.signal_ranks(getattr(signal, self.spec["stop_signal"]))
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)

    def reap(self) -> None:
        """Also reaps what the ranks left behind: orphans come to this process (PR_SET_CHILD_SUBREAPER)."""
        changed = False
        by_pid = {entry["pid"]: entry for entry in self.ranks if entry["state"] == "running"}
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid, wait_status = 0, 0
            if pid == 0:
                break
            if entry := by_pid.get(pid):
                code = os.waitstatus_to_exitcode(wait_status)
                entry.update(state="exited", exit_code=code, ended_at=time.time())
                changed = True
                if code != 0 and self.kill_at is None:
                    self.ask_to_end(SIBLINGS_GRACE_SECONDS)
        if changed:
            self.save("running")

    def signal_ranks(self, number: int) -> None:
        """To the process group: a rank leads its own session and group, and its helpers are in it."""
        for entry in self.ranks:
            if entry["state"] == "running":
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(entry["pid"], number)

    def first_to_fail(self) -> dict[str, Any] | None:
        """A rank that a signal killed explains its peers' errors, which follow it within moments."""
        failed = [entry for entry in self.ranks if entry["exit_code"]]
        if not failed:
            return None
        begin = min(entry["ended_at"] for entry in failed)
        killed = [e for e in failed if e["exit_code"] < 0 and e["exit_code"] != -signal.SIGTERM
                  and e["ended_at"] - begin < 5]  # fmt: skip
        return min(killed or failed, key=lambda entry: entry["ended_at"])

    def sweep(self) -> None:
        """Kills what is left of the ranks' sessions and every orphan that came here, until nothing is."""
        sessions = {entry["pid"] for entry in self.ranks if entry["pid"]}
        while left := [pid for pid in _processes() if _belongs(pid, sessions)]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            time.sleep(0.005)


def adopt_orphans() -> None:
    """What the ranks leave behind becomes our child, so that `Node.sweep` finds it."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _belongs(pid: int, sessions: set[int]) -> bool:
    """Whether `pid` lives and is our child or in one of `sessions` (a number not reused while the session has
    members)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in (b"Z", b"X") and (int(parent) == os.getpid() or int(session) in sessions)


def _execute(command: list[str], env: dict[str, str]) -> BaseException:
    """Never returns; the exception type keeps `raise` honest for callers that must not go on."""
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        os.write(2, f"fermi: cannot run {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def become(command: list[str], env: dict[str, str]) -> None:
    """Runs `python [-u] script.py …` or `python [-u] -m module …` in this process, as the interpreter would: a new
    `__main__`, `sys.argv`, `sys.path[0]`, and a traceback of its own frames alone. Ends the process."""
    os.environ.clear()
    os.environ.update(env)
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()  # a fork inherits the parent's state; `random` reseeds itself
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(env.get("OMP_NUM_THREADS") or 1))  # libgomp read its environment before the fork
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    words = [word for word in command[1:] if word != "-u"]
    try:
        _run_module(words[1:]) if words[0] == "-m" else _run_script(words)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if not isinstance(leave.code, (int, type(None))):
            print(leave.code, file=sys.stderr)
    except BaseException as error:
        traceback = error.__traceback__
        while traceback and traceback.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            traceback = traceback.tb_next  # only the script's own frames are of interest
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)  # tearing the inherited modules down would cost half a second and touch every shared page


def _run_module(words: list[str]) -> None:
    sys.argv = words
    sys.path[0] = os.getcwd()
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _run_script(words: list[str]) -> None:
    script = os.path.abspath(words[0])
    sys.argv = words
    sys.path[0] = os.path.dirname(script)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, main.__dict__)


def run(spec_path: str) -> None:
    """Runs the node of `spec_path` to its end, unless somebody does or ever did. May raise BecomeRank (in a child)."""
    paths = Paths(spec_path)
    lock = try_lock(paths.lock)
    if lock is None or read_json(paths.status) is not None:
        return
    with open(paths.spec) as file:
        spec = json.load(file)
    adopt_orphans()
    Node(spec, paths, lock).run()


def main(spec_path: str) -> None:
    try:
        run(spec_path)
    except BecomeRank as rank:
        command, env = rank.command, rank.env
    else:
        return
    become(command, env)


if __name__ == "__main__":
    main(sys.argv[1])
