"""The processes of an environment's user, and which of them are Jupyter's. Standard library only, Python 3.9 or
later."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fermi.runner import processes

MAX_PROCESSES = 20_000
MAX_WORDS = 200
"""Of a command line."""
SYSTEM_FOLDERS = ("/usr/local/share/jupyter", "/usr/share/jupyter")
NAMED_VARIABLE = "FERMI_PYTHON"
"""The interpreter of an environment that the platform created (`fermi.envd.service`), or that was named in the
container's variables."""
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_SERVERS = ("jupyter-lab", "jupyter-server", "jupyter-notebook", "jupyterhub-singleuser", "jupyter-labhub")
_SERVER_MODULES = ("jupyterlab", "jupyter_server", "notebook", "jupyterhub.singleuser")


class UserProcess(NamedTuple):
    """A process. `started`: ticks since the machine's boot."""

    pid: int
    started: int
    parent: int
    words: Sequence[str]


def list_own_processes() -> list[UserProcess]:
    """Return the processes of this user, the newest first. One that denies tracing (`prctl(2)`, PR_SET_DUMPABLE)
    belongs to root in /proc and is left out. A managed environment without a container shares the machine's processes
    with others of one user: there, only those with its own home count (NAMED_VARIABLE is set there)."""
    user, found = os.getuid(), list[UserProcess]()
    home = os.environ.get("HOME", "") if os.environ.get(NAMED_VARIABLE) else ""
    for number, (pid, fields) in enumerate(processes.list_living_processes()):
        if number >= MAX_PROCESSES:
            break
        try:
            if os.stat(f"/proc/{pid}").st_uid != user:
                continue
        except OSError:
            continue
        words = processes.read_words(pid, "cmdline")[:MAX_WORDS]
        if words and (not home or read_variables(pid).get("HOME") == home):
            found.append(UserProcess(pid, int(fields[19]), int(fields[1]), words))
    return sorted(found, key=lambda one: (-one.started, -one.pid))  # ticks are 10 ms long


def read_variables(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with; none if it has ended."""
    pairs = (word.partition("=") for word in processes.read_words(pid, "environ"))
    return {name: value for name, sign, value in pairs if sign}


def is_kernel(process: UserProcess) -> bool:
    """Return True for a kernel of IPython: `python -m ipykernel_launcher -f connection.json`, as Jupyter and VS Code
    start it (ipykernel, `kernelspec.py`)."""
    return any(word.startswith("ipykernel") for word in process.words) and bool(find_connection_file(process))


def find_connection_file(process: UserProcess) -> str:
    """Return the kernel's connection file, or an empty string."""
    for at, word in enumerate(process.words):
        if word == "-f" and at + 1 < len(process.words):
            return process.words[at + 1]
        if word.startswith(("--f=", "-f=")):
            return word.partition("=")[2]
    return ""


def parse_kernel_id(process: UserProcess) -> str:
    """Return Jupyter's id of the kernel: a part of its connection file's name (jupyter_client,
    `MultiKernelManager`)."""
    name = os.path.basename(find_connection_file(process))
    return name[len("kernel-") : -len(".json")] if name.startswith("kernel-") and name.endswith(".json") else ""


def is_server(process: UserProcess) -> bool:
    """Return True for a Jupyter server, which starts kernels."""
    first = [os.path.basename(word) for word in process.words[:2]]
    modules = [process.words[at + 1] for at, word in enumerate(process.words[:-1]) if word == "-m" and at < 4]
    return any(word in _SERVERS for word in first) or any(word in _SERVER_MODULES for word in modules)


def find_interpreter(process: UserProcess) -> str:
    """Return the path of the interpreter that a process runs, as it was named at its start, so that a virtual
    environment's own name is kept; "" if it runs none."""
    word = process.words[0]
    if is_python(word):
        if word.startswith("/"):
            return word
        if "/" in word:
            return os.path.normpath(os.path.join(_read_link(process.pid, "cwd"), word))
        if found := shutil.which(word, path=read_variables(process.pid).get("PATH", os.defpath)):
            return found
    program = _read_link(process.pid, "exe")
    return program if is_python(program) else ""


def is_python(path: str) -> bool:
    """Return True for a name of a Python interpreter."""
    return bool(_PYTHON.fullmatch(os.path.basename(path)))


def get_prefix(python: str) -> str:
    """Return the folder above an interpreter's `bin`; "" if it is elsewhere."""
    folder = os.path.dirname(python)
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else ""


def list_data_folders(env: Mapping[str, str], prefix: str) -> list[str]:
    """Return where a Jupyter with these variables and this prefix looks for its data, the first that counts first
    (jupyter_core, `paths.jupyter_path`). A virtual environment's own folder comes before the user's."""
    home = env.get("HOME") or os.path.expanduser("~")
    user = [env.get("JUPYTER_DATA_DIR") or os.path.join(env.get("XDG_DATA_HOME") or f"{home}/.local/share", "jupyter")]
    own = [f"{prefix}/share/jupyter"] if prefix else []
    found = [folder.rstrip("/") for folder in env.get("JUPYTER_PATH", "").split(os.pathsep) if folder]
    found += [*own, *user] if own and _prefers_environment(env, prefix) else [*user, *own]
    found += SYSTEM_FOLDERS
    return [folder for folder in dict.fromkeys(found) if folder.startswith("/")]


def get_runtime_folder(env: Mapping[str, str]) -> str:
    """Return where servers with these variables write their runtime files (jupyter_core,
    `paths.jupyter_runtime_dir`)."""
    home = env.get("HOME") or os.path.expanduser("~")
    data = env.get("JUPYTER_DATA_DIR") or os.path.join(env.get("XDG_DATA_HOME") or f"{home}/.local/share", "jupyter")
    return env.get("JUPYTER_RUNTIME_DIR") or os.path.join(data, "runtime")


def _prefers_environment(env: Mapping[str, str], prefix: str) -> bool:
    """Return what `prefer_environment_over_user` of jupyter_core does."""
    said = env.get("JUPYTER_PREFER_ENV_PATH")
    if said is not None:
        return said.lower() not in ("no", "n", "false", "off", "0", "0.0")
    conda = env.get("CONDA_PREFIX", "")
    named = env.get("CONDA_DEFAULT_ENV", "base") != "base"
    if not (os.path.exists(f"{prefix}/pyvenv.cfg") or (conda and prefix.startswith(conda) and named)):
        return False
    try:
        return os.stat(prefix).st_uid == os.getuid() or os.access(prefix, os.W_OK)
    except OSError:
        return False


def _read_link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""
