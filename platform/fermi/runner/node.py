"""The node runner: starts one process per rank on this host, follows them to their end, and writes down what it sees.

    python node.py <spec.json> [-]        `-`: reads variables that are in no file from standard input, as a JSON object

It needs nothing but the standard library (Python 3.9 or later), keeps no connection to anybody, and outlives its
parent. Beside `<node>.json` (the spec) it keeps `<node>.lock` (held while it lives: one runner per spec, ever),
`<node>.status.json` (replaced atomically at each change) and looks for `stop.json` (a request to end:
`{"grace_seconds": 30, "still_seconds": null}`; `still_seconds`: ranks that do nothing for so long get no more grace).

    starting ─▶ running ─▶ exited          `exited` is written last, when no process of the node is left

The spec:

    {"name": "task-x-1", "node_rank": 0, "command": ["python", "train.py"], "cwd": "/…", "env": {"MASTER_ADDR": "…"},
     "ranks": [{"rank": 0, "local_rank": 0, "env": {"RANK": "0"}, "log": "/…/0.log"}],
     "stop_signal": "SIGTERM", "grace_seconds": 30, "last_seconds": 300, "fork": true, "port": 29500, "confine": {…}}

`last_seconds`: a rank that has done nothing at all for so long says since when (`still_since`).

`port`: where rank 0 is to listen, if it is one of these and shares its addresses with others.

`fork`: the ranks may be forked from this process instead of executed, and so inherit the modules that it (see
`template.py`) has imported. A forked rank then runs the script the way `python script.py` or `python -m module` does.

`confine`: what the ranks may reach (see `confine.py`); without it, whatever the runner may.

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
import tempfile
import threading
import time
import types
from typing import Any

from fermi.runner import blame, ports, room
from fermi.runner.stillness import LAST_SECONDS, NEVER, Stillness

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
SIBLINGS_GRACE_SECONDS = 5.0
"""How long the other ranks get to end by themselves (to save, and to print why) after one of them failed."""
STILL_SECONDS = 0.5
"""Those of them that do nothing for so long wait in a collective for the one that is gone: they are ended at once."""
STILL_POLL_SECONDS = 0.1
LOOKS = 10
"""How often it is looked, within the time after which a rank counts as still, whether one does anything at all."""
UNSAVED_SECONDS = 0.5
CANNOT_START = 126
PORT_BLAMED_SECONDS = 120.0
"""Within so long of the start, a rank's failure is blamed on its port if somebody else listens there: what imports for
longer than that is rare, and what fails later has had its port."""
STOP_POLL_SECONDS = 0.25
SECRETS = "secrets.json"
"""Where secrets lie that reach a runner through a folder: a file of its user's alone, there until they were read."""

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
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()


def write_atomically(path: str, data: Any, mode: int = 0o666) -> None:
    """`mode`: of the file, less the umask."""
    replace_atomically(path, json.dumps(data).encode(), mode)


def replace_atomically(path: str, content: bytes, mode: int = 0o666) -> None:
    """Raises OSError, and then leaves nothing behind."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_json(path: str) -> Any:
    """None when it is absent or was torn by a crash of the machine."""
    try:
        with open(path, encoding="utf-8") as file:
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
        self.status |= {"asked": "", "asked_at": None}  # the signal by which somebody outside asked for the end
        self.status["runner"] = {"pid": os.getpid(), "start_time": start_time(os.getpid())}
        self.ranks = self.status["ranks"] = [
            {"rank": r["rank"], "local_rank": r["local_rank"], "pid": None, "start_time": None, "state": "waiting",
             "exit_code": None, "ended_at": None, "asked": False, "still_since": None} for r in spec["ranks"]
        ]  # fmt: skip
        self.last_seconds: float = spec.get("last_seconds", LAST_SECONDS)
        self.kill_at: float | None = None  # monotonic seconds; set once the ranks have been asked to end
        self.began = time.monotonic()
        self.look_at = self.began + self.last_seconds / LOOKS
        self.unsaved = False  # what is in memory is newer than what is written
        self.reserve = room.Reserve(paths.status, 4096 * (1 + len(self.ranks) // 8))
        self.stop_seen: dict[str, Any] | None = None
        self.still_seconds: float | None = None
        self.stillness: Stillness | None = None
        self.confinement: Any = None  # a `confine.Confinement`

    def run(self) -> None:
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGUSR1, *self.ends_on):
            signal.signal(number, lambda *_: None)
        self.save("starting")
        if read_json(self.paths.stop) is None and not self.blame_port():
            self.confine()
            for entry, rank in zip(self.ranks, self.spec["ranks"]):  # noqa: B905 (strict is newer than 3.9)
                self.start(entry, rank, inherited=(wake, wake_write, self.lock))
            if any(entry["exit_code"] for entry in self.ranks):
                self.ask_to_end(0.0)
            self.save("running")
        activity = Stillness((entry["pid"] for entry in self.ranks if entry["pid"]), NEVER)
        while any(entry["state"] == "running" for entry in self.ranks):
            self.sleep(wake)
            self.drain(wake)
            self.obey_stop()
            self.reap()
            if self.unsaved:
                self.save(self.status["state"])
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.signal_ranks(signal.SIGKILL)
            elif self.stillness:
                self.end_the_still(self.stillness)
            elif self.kill_at is None and time.monotonic() >= self.look_at:
                self.note_the_still(activity)
        self.sweep()
        if self.confinement:
            self.confinement.close()
        if any(end.exit_code and not end.asked for end in blame.ends(self.ranks)):
            self.blame_port()
        self.save_the_end()

    def blame_port(self) -> bool:
        """Whether the port that rank 0 is to listen on is somebody else's. To be asked while nothing of ours lives:
        before the ranks are started, and once they have failed (it may have been taken in between)."""
        port = self.spec.get("port")
        if port is None or ports.is_free(port) or time.monotonic() - self.began > PORT_BLAMED_SECONDS:
            return False
        self.status["cause"] = {"code": "MASTER_PORT_TAKEN", "port": port, "holder": ports.holder(port) or None}
        return True

    def blame_disk(self) -> None:
        """A rank has failed: a disk that it writes to may be full."""
        env, failed = self.spec["env"], self.first_to_fail()
        logs = [os.path.dirname(rank["log"]) for rank in self.spec["ranks"] if "log" in rank]
        folders = [env.get("FERMI_CHECKPOINT_DIR", ""), *logs[:1], os.path.dirname(self.paths.status), self.spec["cwd"]]
        found = room.full([folder for folder in folders if folder])
        if found and failed and not self.status.get("cause"):
            self.status["cause"] = {"code": "DISK_FULL", **found, "rank": failed["rank"]}

    def confine(self) -> None:
        """Where the spec asks for it; elsewhere the runner travels without that module."""
        if order := self.spec.get("confine"):
            from fermi.runner.confine import Confinement

            self.confinement = Confinement(order, self.spec["name"], {**os.environ, **self.spec["env"]})

    def save(self, state: str) -> None:
        """A disk that takes nothing ends no training: the state is kept here, and written when there is room."""
        self.status["state"] = state
        content = json.dumps(self.status).encode()
        self.unsaved = False
        try:
            replace_atomically(self.paths.status, self.reserve.padded(content))
            self.reserve.take()
        except OSError:
            try:
                self.reserve.write(content)
            except OSError:
                self.unsaved = True

    def save_the_end(self) -> None:
        """Stays until it is written, or nobody wants it any more: the folder is gone."""
        self.save("exited")
        while self.unsaved and os.path.exists(self.paths.spec):
            time.sleep(UNSAVED_SECONDS)
            self.save("exited")
        self.reserve.give_back()

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
        """What ranks do from here on is neither a failure of theirs nor a success: only who had ended is judged."""
        self.reap()
        if not self.status["asked"] and any(entry["state"] == "running" for entry in self.ranks):
            self.status.update(asked=signal.Signals(number).name, asked_at=time.time())
            self.save(self.status["state"])
        self.ask_to_end(self.spec["grace_seconds"])

    def seconds_to_sleep(self) -> float:
        poll = STILL_POLL_SECONDS if self.stillness else STOP_POLL_SECONDS
        return poll if self.kill_at is None else min(poll, max(0.0, self.kill_at - time.monotonic()))

    def start(self, entry: dict[str, Any], rank: dict[str, Any], inherited: tuple[int, ...]) -> None:
        confinement = self.confinement
        inherited_env = confinement.environment(os.environ) if confinement else os.environ
        env = {**inherited_env, **self.spec["env"], **rank["env"]}
        try:
            log = self.open_output(rank)
        except OSError as error:
            print(f"fermi: rank {rank['rank']} was not started: {error}", file=sys.stderr, flush=True)
            entry.update(state="exited", exit_code=CANNOT_START, ended_at=time.time())
            self.blame_disk()
            return
        runner = os.getpid()
        ready, not_yet = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGPIPE):
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.close(not_yet)
                nothing = os.open(os.devnull, os.O_RDONLY)
                for source, target in ((nothing, 0), (log, 1), (log, 2)):
                    os.dup2(source, target)
                if confinement:
                    confinement.enter(1)
                for descriptor in (*inherited, nothing, log, ready):
                    os.close(descriptor)
                _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # forgotten by a change of user, so after it
                if os.getppid() != runner:
                    os._exit(1)
                os.chdir(self.spec["cwd"])
            except BaseException as error:
                os.write(2, f"fermi: rank {rank['rank']} could not be set up: {error}\n".encode())
                os._exit(126)
            raise (
                BecomeRank(self.spec["command"], env) if self.spec.get("fork") else _execute(self.spec["command"], env)
            )
        for descriptor in (log, not_yet):
            os.close(descriptor)
        os.read(ready, 1)  # until the child leads its session: before that, no signal to its group would reach it
        os.close(ready)
        entry.update(pid=pid, start_time=start_time(pid), state="running")

    def obey_stop(self) -> None:
        stop = read_json(self.paths.stop)
        if stop is not None and stop != self.stop_seen:
            self.stop_seen = stop
            self.ask_to_end(stop["grace_seconds"], stop.get("still_seconds"))

    def ask_to_end(self, grace_seconds: float, still_seconds: float | None = None) -> None:
        """Sends the stop signal once; a later, shorter grace brings the kill forward."""
        kill_at = time.monotonic() + grace_seconds
        if self.kill_at is None:
            self.signal_ranks(getattr(signal, self.spec["stop_signal"]))
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if still_seconds is not None and self.stillness is None:
            self.still_seconds = still_seconds
            self.stillness = Stillness(entry["pid"] for entry in self.ranks if entry["state"] == "running")

    def end_the_still(self, stillness: Stillness) -> None:
        """Kills those that have done nothing since they were asked, or nothing any more."""
        still = stillness.seconds()
        for entry in self.ranks:
            if entry["state"] == "running" and still.get(entry["pid"], 0.0) >= (self.still_seconds or 0.0):
                self.signal_rank(entry, signal.SIGKILL)

    def reap(self) -> None:
        """Also reaps what the ranks left behind: orphans come to this process (PR_SET_CHILD_SUBREAPER)."""
        changed: list[int] = []
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
                entry.update(state="exited", exit_code=code, ended_at=time.time(), still_since=None)
                changed.append(code)
        if any(code > 0 or code == -signal.SIGBUS for code in changed) and self.kill_at is None:
            self.blame_disk()
        if any(changed) and self.kill_at is None:  # after all that ended by themselves have been counted
            self.ask_to_end(SIBLINGS_GRACE_SECONDS, STILL_SECONDS)
        if changed:
            self.save("running")

    def note_the_still(self, activity: Stillness) -> None:
        """Says of a rank since when it has done nothing at all, once that is long. Whether somebody is left for whom it
        waits, only who knows all nodes can tell."""
        self.look_at = time.monotonic() + self.last_seconds / LOOKS
        seconds, moment, before = activity.seconds(), time.time(), [entry["still_since"] for entry in self.ranks]
        for entry in self.ranks:
            still = seconds.get(entry["pid"], 0.0) if entry["state"] == "running" else 0.0
            began = entry["still_since"] or moment - still
            entry["still_since"] = began if still >= self.last_seconds else None
        if before != [entry["still_since"] for entry in self.ranks]:
            self.save("running")

    def signal_ranks(self, number: int) -> None:
        for entry in self.ranks:
            if entry["state"] == "running":
                self.signal_rank(entry, number)

    @staticmethod
    def signal_rank(entry: dict[str, Any], number: int) -> None:
        """To the process group: a rank leads its own session and group, and its helpers are in it."""
        entry["asked"] = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(entry["pid"], number)

    def first_to_fail(self) -> dict[str, Any] | None:
        """Of this node's ranks."""
        end = blame.first_to_fail(blame.ends(self.ranks))
        return end and next(entry for entry in self.ranks if entry["rank"] == end.rank)

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


def keep_ranks_out() -> None:
    """No process of this user can write to our output or read our memory through /proc, unless it has CAP_SYS_PTRACE
    (which containers have not). Ranks get that back with their own program."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


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
    tempfile.tempdir = None  # may have been found by an import, in another environment
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()  # a fork inherits the parent's state; `random` reseeds itself
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(env.get("OMP_NUM_THREADS") or 1))  # libgomp read its environment before the fork
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False, errors="backslashreplace")
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


def run(spec_path: str, secrets: dict[str, str]) -> None:
    """Runs the node of `spec_path` to its end, unless somebody does or ever did. `secrets`: what all ranks get in their
    environment beside what the spec says. May raise BecomeRank (in a child)."""
    paths = Paths(spec_path)
    lock = try_lock(paths.lock)
    if lock is None or read_json(paths.status) is not None:
        return
    with open(paths.spec, encoding="utf-8") as file:
        spec = json.load(file)
    spec["env"] = {**spec["env"], **secrets}
    adopt_orphans()
    Node(spec, paths, lock).run()


def main(spec_path: str, secrets: dict[str, str]) -> None:
    try:
        run(spec_path, secrets)
    except BecomeRank as rank:
        command, env = rank.command, rank.env
    else:
        return
    become(command, env)


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin) if sys.argv[2:] == ["-"] else {})
