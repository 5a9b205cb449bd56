"""Sets up a task's code and its packages on this node before the ranks start. Standard library only, Python 3.9 or
later.

    "code": {"snapshot": "…", "folder": "/…/code/archives/…", "requirements": "auto", "cache": "/…/packages",
             "python": "/usr/bin/python3", "chosen": "/…/python"}

`folder`: has the snapshot's archive; `cwd` of the spec is the tree made of it (`worktree.py`). `chosen`: the file in
which this node stores the interpreter of its ranks, if it is not the planned one.

A child process that leads its own session does it, so the runner goes on reacting to stop requests, and can kill the
child with everything that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.runner import processes, worktree
from fermi.runner.code import CodeDeliveryError

OFF, AUTO = "off", "auto"
REQUIREMENT_FILES = {"uv.lock": "uv", "requirements.txt": "pip"}
"""Files that are looked for in the tree's root, in this order, and their kind."""
MAX_OUTPUT_LENGTH = 1500
REPORT_PERIOD_SECONDS = 2.0
"""Between two reports within a step; the next step is reported at once."""


class CodeDelivery:
    """The child process that sets up the code of a node's spec. `doing`: {"code": …, …}, the current step; `done`: the
    interpreter for the ranks (empty: as planned); `failed`: a cause."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.target: str = spec["cwd"]
        self.doing: dict[str, Any] | None = None
        self._told: dict[str, Any] | None = None
        self._told_at = 0.0
        self.failed: dict[str, Any] | None = None
        self.done: str | None = None
        self._rest = b""
        self._heard, told = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._heard, False)
        runner = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _run_delivery(spec, told, runner)
        os.close(told)

    def listen(self, seconds: float, wake: int) -> bool:
        """Wait for at most `seconds` or a signal on `wake`, and return True if `doing` has to be reported."""
        if self._heard in select.select([self._heard, wake], [], [], seconds)[0]:
            self._hear()
        if self.is_over or self.doing is None or self.doing == self._told:
            return False
        step, before = self.doing["code"], self._told and self._told["code"]
        if step == before and time.monotonic() - self._told_at < REPORT_PERIOD_SECONDS:
            return False
        self._told, self._told_at = self.doing, time.monotonic()
        return True

    def _hear(self) -> None:
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._heard, 1 << 16)
            if not data and not self.is_over:
                why = "the process that unpacked it was ended"
                self.failed = {"code": "CODE_NOT_UNPACKED", "path": self.target, "why": why}
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            for name, value in json.loads(line).items():
                setattr(self, name, value)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.done is not None or self.failed is not None

    def close(self) -> None:
        """Kill the child process with everything that it started. One that is done is not waited for, because the end
        of a process that was forked with the training stack takes a while: the runner collects it with the others."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG if self.done is not None else 0)
        os.close(self._heard)


def build_interpreter_env(python: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which the programs of this interpreter are found first."""
    folder, path = os.path.dirname(python), env.get("PATH") or os.environ.get("PATH", os.defpath)
    return {"PATH": f"{folder}{os.pathsep}{path}", "VIRTUAL_ENV": os.path.dirname(folder)}


def write_chosen_interpreter(chosen: str, python: str) -> None:
    """Store the interpreter of the ranks in the file `chosen`, for commands that are run next to them later."""
    with contextlib.suppress(OSError), open(chosen, "w", encoding="utf-8") as file:
        file.write(python)


def read_chosen_interpreter(chosen: str) -> str:
    """Return the stored interpreter, or an empty string if the ranks run with the planned one."""
    with contextlib.suppress(OSError), open(chosen, encoding="utf-8") as file:
        return file.read()
    return ""


def _run_delivery(spec: dict[str, Any], pipe: int, runner: int) -> None:
    """Run in the child process. Never returns."""

    def tell(**said: Any) -> None:
        os.write(pipe, json.dumps(said).encode() + b"\n")

    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGURG, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        processes.die_with_parent()
        if os.getppid() != runner:
            os._exit(1)
        tell(done=deliver_code(spec, tell))
    except CodeDeliveryError as error:
        tell(failed={"code": error.code, **error.params})
    except BaseException as error:
        tell(failed={"code": "CODE_NOT_UNPACKED", "path": spec["cwd"], "why": f"{type(error).__name__}: {error}"[:300]})
    os._exit(0)


def deliver_code(spec: dict[str, Any], tell: Any) -> str:
    """Set up code and packages, and return the interpreter for the ranks; empty: the planned one. Raises
    CodeDeliveryError."""
    tell(doing={"code": "CODE_UNPACKING"})
    check_out_code(spec)
    found = find_requirements(spec["code"].get("requirements") or AUTO, spec["cwd"])
    return _prepare_packages(spec, *found, tell) if found else ""


def check_out_code(spec: dict[str, Any]) -> None:
    """Set up the tree of a node's spec, if no other node of the attempt has. Raises CodeDeliveryError."""
    order, user = spec["code"], (spec.get("confine") or {}).get("user")
    owner = worktree.TreeOwner(user["uid"], user["gid"]) if user else None  # scripts write beside themselves
    found = {**os.environ, **spec["env"]}.get("FERMI_RESUME_FROM", "") if spec.get("resumes_in_place") else ""
    worktree.check_out_tree(order["folder"], order["snapshot"], spec["cwd"], spec["name"], owner, checkpoint=found)


def is_delivered(spec: dict[str, Any]) -> bool:
    """Return True if the tree is set up for this attempt and needs no packages, so that nothing is left to do."""
    if not worktree.is_set_up(spec["cwd"], spec["name"]):
        return False
    with contextlib.suppress(CodeDeliveryError):
        return find_requirements(spec["code"].get("requirements") or AUTO, spec["cwd"]) is None
    return False


def find_requirements(setting: str, target: str) -> tuple[str, str] | None:
    """Return the requirements file and its kind, or None. Raises CodeDeliveryError if a file is named that does not
    exist."""
    if setting == OFF:
        return None
    names = REQUIREMENT_FILES if setting == AUTO else {setting: REQUIREMENT_FILES.get(os.path.basename(setting), "pip")}
    for name, kind in names.items():
        if os.path.isfile(os.path.join(target, name)):
            return name, kind
    if setting == AUTO:
        return None
    raise CodeDeliveryError("CODE_PACKAGES_FAILED", file=setting, why="there is no such file in the snapshot")


def get_named_requirements(setting: str) -> str:
    """Return the file that was named by the user; empty if none was."""
    return "" if setting in (OFF, AUTO) else setting


def _prepare_packages(spec: dict[str, Any], name: str, kind: str, tell: Any) -> str:
    from fermi.runner.package_cache import PackagesError, has_local_packages, prepare_packages

    def say(words: str) -> None:
        tell(doing={"code": "CODE_PACKAGES_PREPARING", "file": name, "said": words[-200:]})

    say("")
    order, tree, cache = spec["code"], spec["cwd"], spec["code"]["cache"]
    where = os.path.join(tree, name)
    os.makedirs(cache, exist_ok=True)
    try:
        with contextlib.ExitStack() as building:
            if has_local_packages(where, kind):  # which other nodes build in, too
                lock = worktree.lock_tree(f"{tree}.packages", lambda: say("waiting for another node that builds in it"))
                building.enter_context(lock)
            if confine := spec.get("confine"):
                _enter_sandbox(confine, cache, spec["name"])
            os.environ.update(spec["env"])  # an index of their own
            os.chdir(tree)
            made = prepare_packages(_choose_base(order), where, kind, Path(cache), say, tree=order["snapshot"])
    except PackagesError as error:
        why = str(error.params.get("output") or error.code)
        raise CodeDeliveryError("CODE_PACKAGES_FAILED", file=name, why=why[-MAX_OUTPUT_LENGTH:]) from error
    except OSError as error:
        raise CodeDeliveryError(
            "CODE_PACKAGES_FAILED", file=name, why=f"{error.filename or cache}: {error.strerror}"
        ) from error
    return str(made / "bin" / "python")


def _enter_sandbox(order: dict[str, Any], cache: str, name: str) -> None:
    """Enter the ranks' sandbox, with the cache writable: building from source runs the task's own code. Ranks can only
    read the result."""
    from fermi.runner.sandbox import Sandbox

    paths = {"paths": {**order["paths"], cache: "rwm"}} if "paths" in order else {}
    confinement = Sandbox({**order, "own": [*order["own"], cache], **paths}, name, os.environ)
    inherited = confinement.environment(os.environ)
    os.environ.clear()
    os.environ.update(inherited)
    confinement.enter(1)


def _choose_base(order: dict[str, Any]) -> str:
    return str(order.get("python") or sys.executable)
