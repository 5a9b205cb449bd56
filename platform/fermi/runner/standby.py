"""A standby process inside of a dev environment: has the training stack imported and forks node runners, as
`fork_server.py` does for the platform's own machine. Standard library only, Python 3.9 or later.

    python -u -m fermi.runner.standby FOLDER '{"modules": ["torch"], "seconds": 1800, "yields": {…}}'

`FOLDER`, which only its user can access: `lock`, held while it lives; `state.json`; `socket` (`channel.py`) for orders:

    {"ask": "begin", "spec": path, "secrets": {…}, "env": {…}}    forks the node runner of `fermi.runner.inside`
    {"ask": "keep", "seconds": 1800}                              keeps standing by for so long
    {"ask": "end"}

    {"ok": true, …}, or {"ok": false, "code": …}: the attempt then starts without it

An order is read by the process that is forked for it, so that its content, and secrets above all, is in no page that
ranks of another order share. The attempt's variables must be those that this process was started with, for libraries
have read them. After something was installed, changed or removed where modules come from, it restarts itself. It ends
when there was no order for `seconds`, and is the first to be killed when memory runs out.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import site
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from fermi.runner import channel, fork_server, inside, node, processes
from fermi.runner.channel import IMPORTING, PROCESS_NAME, STANDING_BY, UNUSABLE
from fermi.runner.files import RunnerPaths, try_lock, write_json_atomically
from fermi.runner.processes import read_boot_id, read_start_time

ORDER_TIMEOUT_SECONDS = 10
"""How long an order may take to arrive."""
MAX_STANDBY_SECONDS = 86_400.0
EXIT_KEEP, EXIT_STALE, EXIT_END = 10, 11, 12
"""Exit codes of the process that reads an order."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Threads do not survive a fork; ranks choose their number later (`rank.run_rank_here`)."""
IGNORED_VARIABLES = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES"})
"""Variables that a shell or terminal sets, and no library reads while it is imported."""
OWN_BUNDLE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class StandbyProcess:
    """The standby process. `imported_from`: last change of each of `list_sources`; `env`: the variables it was started
    with; `until`: monotonic seconds."""

    def __init__(self, folder: str, asked: dict[str, Any]) -> None:
        self.folder, self.asked, self.env = folder, asked, dict(os.environ)
        self.state_path = os.path.join(folder, "state.json")
        self.imported_from: dict[str, int] = {}
        self.until = 0.0

    def run(self) -> None:
        """Import, and serve orders to the end."""
        if try_lock(os.path.join(self.folder, "lock")) is None:
            return
        processes.set_process_name(PROCESS_NAME)
        self.save(IMPORTING)
        with contextlib.suppress(OSError):
            os.truncate(os.path.join(self.folder, "log"), 0)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if "oom" not in self.asked:
            self.asked["oom"] = maximize_oom_score()
            inside.lower_priority({"nice": (self.asked.get("yields") or {}).get("nice")})
        try:
            door = channel.open_socket(self.folder)
        except OSError as error:
            self.save(UNUSABLE, code="STANDBY_SOCKET", params={"why": error.strerror or str(error)})
            return
        if unusable := self.import_stack():
            self.save(UNUSABLE, **unusable)
            return
        self.save(STANDING_BY)
        self.extend(float(self.asked.get("seconds") or 0))
        self.serve(door)

    def import_stack(self) -> dict[str, Any] | None:
        """Import the modules. Return why no attempt can be forked from this process, or None."""
        os.environ.update({name: "1" for name in THREAD_VARIABLES if name not in os.environ})
        modules = ",".join(self.asked["modules"])
        fork_server.import_modules(modules)
        if "torch" not in sys.modules:
            return {"code": "STANDBY_WITHOUT_TORCH", "params": {"python": sys.executable}}
        fork_server.import_modules(",".join(fork_server.DEFERRED_MODULES))
        fork_server.warm_up_profiler()
        self.imported_from = {path: read_change_time(path) for path in list_sources()}
        if sys.modules["torch"].cuda.is_initialized():
            return {"code": "STANDBY_HAS_CUDA", "params": {"python": sys.executable}}
        if (threads := len(os.listdir("/proc/self/task"))) != 1:
            return {"code": "STANDBY_HAS_THREADS", "params": {"python": sys.executable, "threads": threads}}
        return None

    def extend(self, seconds: float) -> None:
        """Stand by for so many seconds from now on."""
        self.until = time.monotonic() + min(seconds, MAX_STANDBY_SECONDS)

    def save(self, state: str, **more: Any) -> None:
        """Write the state file."""
        me = {"pid": os.getpid(), "start_time": read_start_time(os.getpid()), "boot_id": read_boot_id()}
        told = {"state": state, "python": sys.executable, "at": time.time(), **me, **more}
        write_json_atomically(self.state_path, told, 0o600)

    def serve(self, door: socket.socket) -> None:
        """Serve orders until there was none for long."""
        while (left := self.until - time.monotonic()) > 0:
            if not select.select([door], [], [], left)[0]:
                continue
            stream, _ = door.accept()
            with stream:
                if not channel.read_peer_pid(stream):
                    continue
                if (child := os.fork()) == 0:
                    os._exit(self.answer(stream))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code == EXIT_END:
                return
            if code == EXIT_STALE:
                again = ["-u", "-m", "fermi.runner.standby", self.folder, json.dumps(self.asked)]
                os.execve(sys.executable, [sys.executable, *again], self.env)
            if code == EXIT_KEEP:
                self.extend(float(self.asked.get("seconds") or 0))

    def answer(self, stream: socket.socket) -> int:
        """Answer an order, in a process forked for it, and return its exit code."""
        signal.alarm(ORDER_TIMEOUT_SECONDS)
        try:
            order = channel.receive_message(stream)
            said, code = self.carry_out(order)
            channel.send_message(stream, said)
            return code
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return 1

    def carry_out(self, order: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Return the answer, and the exit code."""
        ask = order["ask"]
        if ask == "end":
            return {"ok": True}, EXIT_END
        if any(read_change_time(path) != at for path, at in self.imported_from.items()):
            return {"ok": False, "code": "STANDBY_STALE"}, EXIT_STALE
        if ask == "keep":
            told = {"memory": read_memory(os.getppid()), "seconds": self.asked.get("seconds"), "python": sys.executable}
            return {"ok": True, **told}, EXIT_KEEP
        if ask != "begin":
            return {"ok": False, "code": "STANDBY_UNKNOWN_ORDER"}, 1
        env = {str(name): str(value) for name, value in order["env"].items()}
        if select_compared(env) != select_compared(self.env):
            return {"ok": False, "code": "STANDBY_OTHER_VARIABLES"}, EXIT_END
        if os.fork() == 0:
            self.become_node(str(order["spec"]), order["secrets"], env)
        return {"ok": True}, EXIT_KEEP

    def become_node(self, spec_path: str, secrets: dict[str, str], env: Mapping[str, str]) -> NoReturn:
        """Become a node runner that keeps only what is imported."""
        try:
            processes.set_process_name(os.path.basename(sys.executable))
            fork_server.detach_process(os.open(os.devnull, os.O_RDONLY), RunnerPaths(spec_path).log, 0o600)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.clear()
            os.environ.update(env)
            restore_oom_score(self.asked["oom"])
            sys.argv = ["fermi.runner.inside", spec_path]
            node.main(spec_path, secrets, partial(inside.run_node, standby=True))
        finally:
            os._exit(0)


def list_sources() -> set[str]:
    """Return the paths that change when modules are added, changed or removed: folders of the path and of imported
    packages, the interpreter, and the file that names its packages. Our own bundle never changes."""
    paths = {sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), *sys.path[1:]}
    if site.ENABLE_USER_SITE:
        paths.add(site.getusersitepackages())
    for name, module in list(sys.modules.items()):
        if "." not in name and (file := getattr(module, "__file__", None)):
            paths |= {file, os.path.dirname(file)}
    return {path for path in paths if path and not path.startswith(OWN_BUNDLE)}


def read_change_time(path: str) -> int:
    """Return the last change in nanoseconds; 0: it does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def select_compared(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must be equal."""
    return {name: value for name, value in env.items() if name not in IGNORED_VARIABLES}


def maximize_oom_score() -> str:
    """Set the highest `oom_score_adj` and return the former one: a process that raised its own may lower it as far
    again (proc_pid_oom_score_adj(5))."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        before = file.read().strip()
        file.seek(0)
        file.write(str(inside.MAX_OOM_SCORE))
        return before
    return ""


def restore_oom_score(before: str) -> None:
    """Set `oom_score_adj` to the former value."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(before)


def read_memory(pid: int) -> int:
    """Return a process's memory in bytes, with its share of pages that several have (proc_pid_smaps(5))."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace") as file:
        found = {name: value.split() for name, _, value in (line.partition(":") for line in file)}
        if pss := found.get("Pss"):
            return int(pss[0]) << 10
    return 0


def main(folder: str, settings: str) -> None:
    """Run a standby process. `settings`: its settings as JSON."""
    one = StandbyProcess(folder, json.loads(settings))
    try:
        one.run()
    except Exception as error:
        one.save(UNUSABLE, code="STANDBY_FAILED", params={"why": f"{type(error).__name__}: {error}"[:300]})
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
