"""Starts the process of one rank, from the fork to its own program. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fermi.probe.setup import LauncherFiles, RankFiles
from fermi.probe.shared_page import PULSE_VARIABLE
from fermi.runner import processes
from fermi.runner.exit_codes import CANNOT_START, NOT_FOUND

if TYPE_CHECKING:
    from fermi.probe.rank import ProgressWriter


PYTHON_VARIABLE = "FERMI_PYTHON"
"""The interpreter of a task whose command is another program: the programs beside it are found first."""


class UnwindToRankError(BaseException):
    """Raised in a forked child to unwind the runner's stack; the top of the program then runs the rank's script."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.command = command
        self.env = env


def start_rank(
    rank: int,
    command: list[str],
    env: dict[str, str],
    cwd: str,
    output: int,
    *,
    fork: bool,
    confinement: Any,
    signals: Iterable[int],
    inherited: Iterable[int],
    pulse: RankFiles | LauncherFiles | None = None,
    batch: bool = False,
    limit: Callable[[], None] | None = None,
    venv: str = "",
) -> int:
    """Start a process that leads its session and group, and return its pid. `output` is closed here. `fork`: it
    continues with our modules (and UnwindToRankError is raised in it) instead of executing `command`. `signals`,
    `inherited`: the runner's signal handlers, and descriptors that no rank may have (those of other ranks' pulses among
    them). `pulse`: files of the rank's probe. `batch`: it computes on processors, next to others that do (see
    `processes.use_batch_scheduling`). `limit`: called in it, before it is confined. `venv`: the virtual environment of
    `command`'s interpreter, which a forked rank adopts; if it cannot, `command` is executed."""
    env = {**env, **prepend_interpreter_folder(env.get(PYTHON_VARIABLE, command[0]), env)}
    runner = os.getpid()
    ready, not_yet = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if batch:
                processes.use_batch_scheduling()
            signal.set_wakeup_fd(-1)
            for number in {signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGPIPE, *signals}:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(not_yet)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            processes.raise_oom_score()
            if limit:
                limit()
            if confinement:
                confinement.enter(1)
            for descriptor in (*inherited, nothing, output, ready):
                os.close(descriptor)
            processes.die_with_parent()  # after a change of user
            if os.getppid() != runner:
                os._exit(1)
            os.chdir(cwd)
            if pulse:
                env.update(pulse.environment(env))
            fork = fork and (not venv or _adopt_venv(venv))
            if pulse and not fork:
                pulse.inherit()
        except BaseException as error:
            os.write(2, f"fermi: rank {rank} could not be set up: {error}\n".encode())
            os._exit(CANNOT_START)
        raise UnwindToRankError(command, env) if fork else _execute(command, env)
    for descriptor in (output, not_yet):
        os.close(descriptor)
    os.read(ready, 1)  # until the child leads its session: before that, no signal to its group would reach it
    os.close(ready)
    return pid


def can_run_here(command: Sequence[str], python: str) -> bool:
    """Return True if a process that has our modules can run the command: a script or a module, with no other option of
    the interpreter than `-u`. `python`: the task's interpreter; a command that names another one is executed."""
    first = next((word for word in command[1:] if word != "-u"), "-")
    return command[0] == python and (first == "-m" or not first.startswith("-"))


def _adopt_venv(venv: str) -> bool:
    from fermi.runner.venv import adopt_venv  # only where it is used

    if adopt_venv(venv):
        return True
    if "torch" in sys.modules:
        text = f"fermi: the rank imports PyTorch itself: {venv} has other packages than the process that stands by\n"
        os.write(2, text.encode())
    return False


def prepend_interpreter_folder(program: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the PATH with which `python`, `torchrun` or `ninja` is that of the interpreter `program`, as in an
    activated virtual environment; nothing if `program` is no interpreter with an absolute path."""
    folder, name = os.path.split(program)
    path = env.get("PATH") or os.defpath
    if not os.path.isabs(folder) or not name.startswith("python") or path.split(os.pathsep)[0] == folder:
        return {}
    return {"PATH": folder + os.pathsep + path}


def _execute(command: list[str], env: dict[str, str]) -> BaseException:
    """Execute the command. Never returns; the return type is for the caller's `raise`."""
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        os.write(2, f"fermi: cannot run {command[0]}: {error.strerror}\n".encode())
    os._exit(NOT_FOUND)


def run_rank_here(command: list[str], env: dict[str, str]) -> None:
    """Run `python [-u] script.py …` or `python [-u] -m module …` in this process, as the interpreter would: a new
    `__main__`, `sys.argv`, `sys.path[0]`, and a traceback of its own frames alone. Ends the process."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # may have been found by an import, in another environment
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()  # a fork inherits the parent's state; `random` reseeds itself
    if torch := sys.modules.get("torch"):
        # libgomp read its environment before the fork. The first call sizes PyTorch's other pool as well (pthreadpool,
        # caffe2/utils/threadpool/pthreadpool-cpp.cc, which training does not use), and starts its threads at once
        for threads in (1, int(env.get("OMP_NUM_THREADS") or 1)):
            torch.set_num_threads(threads)
    pulse = _start_probe() if PULSE_VARIABLE in env else None
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
            if pulse:
                pulse.failed(leave, leave.__traceback__)
    except BaseException as error:
        traceback = error.__traceback__
        while traceback and traceback.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            traceback = traceback.tb_next  # only the script's own frames are of interest
        if pulse:
            pulse.failed(error, traceback)
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    vars(sys.modules["__main__"]).clear()  # a file that the script left open is written out
    sys.stdout.flush()
    sys.stderr.flush()
    _flush_c()
    os._exit(code & 0xFF)  # tearing the inherited modules down would cost half a second and touch every shared page


def _flush_c() -> None:
    """Flush open C streams, as exit(3) does. Never raises."""
    try:
        import ctypes

        ctypes.CDLL(None).fflush(None)
    except Exception:
        pass


def _start_probe() -> ProgressWriter | None:
    """Start the probe. The rank goes on if that fails."""
    try:
        from fermi.probe.start import start  # only where it is used: a runner has no pulse

        return start()
    except Exception:
        return None


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
