"""Finds the Python interpreters of an environment that its user may mean, and the one that a notebook would run.
Standard library only, Python 3.9 or later.

In this order; the first one that runs is the default:

    named       FERMI_PYTHON, if the environment's creator has set its own
    kernel      a running kernel, the newest first
    kernelspec  what Jupyter starts for `python3`, then for its other kernels (jupyter_client, `kernelspec.py`)
    virtualenv  VIRTUAL_ENV, CONDA_PREFIX, and `.venv` in the working and the home folder, as uv creates it
    path        `python3` on the PATH, and the interpreter that runs this
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fermi.inside import user_processes
from fermi.inside.user_processes import UserProcess

MAX_KERNELS = 64
MAX_INTERPRETERS = 16
MAX_SPEC_BYTES = 64 << 10
ANSWER_TIMEOUT_SECONDS = 2.0
"""For all interpreters together to report their versions."""
NAMED, KERNEL, KERNELSPEC, VIRTUALENV, PATH = "named", "kernel", "kernelspec", "virtualenv", "path"
OWN_INTERPRETER = sys.executable
NATIVE_KERNEL = "python3"
"""The kernel that a Jupyter server has without a kernelspec: its own interpreter with ipykernel."""
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_VERSION_PROGRAM = "import sys; print('.'.join(map(str, sys.version_info[:3])), sys.executable)"


class InterpreterCandidate(NamedTuple):
    """An interpreter. `source`: how it was found; `kernel`: the name of its kernelspec."""

    python: str
    source: str
    kernel: str = ""


def find_interpreters(env: Mapping[str, str] | None = None, own: Sequence[UserProcess] | None = None) -> dict[str, Any]:
    """Return `interpreters`, each with `python`, `real`, `version` (empty: it does not run), `kernels` and `sources`,
    and `default`: the path of one of them. `env`: this process's variables; `own`: the user's processes."""
    variables = os.environ if env is None else env
    found = dict[tuple[str, str], dict[str, Any]]()
    for one in _iter_candidates(variables, user_processes.list_own_processes() if own is None else own):
        real = os.path.realpath(one.python)
        key = os.path.dirname(one.python), real  # `python` and `python3` of one folder are one
        if key not in found and len(found) >= MAX_INTERPRETERS:
            continue
        known = found.setdefault(key, {"python": one.python, "real": real, "kernels": [], "sources": []})
        if one.source not in known["sources"]:
            known["sources"].append(one.source)
        if one.kernel and one.kernel not in known["kernels"]:
            known["kernels"].append(one.kernel)
    listed = [*found.values()]
    if any(one["sources"] != [PATH] for one in listed):
        listed = [one for one in listed if one["sources"] != [PATH] or not _is_script(one["python"])]
    said = query_versions([one["python"] for one in listed])
    for known in listed:
        known["version"], executable = said.get(known["python"], ("", ""))
        if executable and _is_script(known["python"]):
            known["python"], known["real"] = executable, os.path.realpath(executable)
    usable = [one["python"] for one in listed if one["version"]]
    return {"interpreters": listed, "default": usable[0] if usable else OWN_INTERPRETER}


def find_default_interpreter(runs: Callable[[str], bool]) -> str:
    """Return the default of `find_interpreters`, without starting any interpreter if `runs` returns True for the first
    one."""
    first = next(_iter_candidates(os.environ, user_processes.list_own_processes()), None)
    return first.python if first and runs(first.python) else str(find_interpreters()["default"])


def resolve_interpreter(name: str, found: Mapping[str, Any]) -> str:
    """Return the interpreter that `name` means, an absolute path or the name of a kernel, or else the default of
    `found`; "" if there is no such kernel."""
    if not name:
        return str(found["default"])
    if "/" in name:
        return name
    return next((one["python"] for one in found["interpreters"] if name in one["kernels"]), "")


def query_versions(pythons: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the version and the path that each interpreter reports, all run at once; those that do not run are left
    out."""
    own = ".".join(map(str, sys.version_info[:3]))
    found, asked = dict[str, tuple[str, str]](), list[tuple[str, Any]]()
    for python in pythons:
        if python == OWN_INTERPRETER:
            found[python] = own, python
            continue
        try:
            process = subprocess.Popen(
                [python, "-I", "-S", "-c", _VERSION_PROGRAM],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
            )  # fmt: skip
        except OSError:
            continue
        asked.append((python, process))
    limit = time.monotonic() + ANSWER_TIMEOUT_SECONDS
    for python, process in asked:
        try:
            said, _ = process.communicate(timeout=max(0.05, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        version, _, executable = said[:MAX_SPEC_BYTES].decode(errors="replace").strip().partition(" ")
        if process.returncode == 0 and re.fullmatch(r"\d+\.\d+\.\d+", version):
            found[python] = version, executable
    return found


def _iter_candidates(env: Mapping[str, str], own: Sequence[UserProcess]) -> Iterator[InterpreterCandidate]:
    """Yield the interpreters in their order."""
    servers = [
        (user_processes.find_interpreter(one), user_processes.read_variables(one.pid))
        for one in own
        if user_processes.is_server(one)
    ]
    servers = [(python, variables) for python, variables in servers if python]
    if named := env.get(user_processes.NAMED_VARIABLE):
        yield InterpreterCandidate(named, NAMED, NATIVE_KERNEL)
    for one in own:
        if user_processes.is_kernel(one) and (python := user_processes.find_interpreter(one)):
            yield InterpreterCandidate(python, KERNEL)
    started_with = [env, *(variables for _, variables in servers)]
    activated = [python for variables in started_with for python in _iter_activated(variables)]
    on_path = [shutil.which("python3", path=env.get("PATH", os.defpath)) or "", OWN_INTERPRETER]
    outside = [*activated, *filter(None, on_path)]
    specs = [*_iter_kernelspecs(env, servers, outside)]
    yield from (one for one in specs if one.kernel == NATIVE_KERNEL)
    yield from (one for one in specs if one.kernel != NATIVE_KERNEL)
    yield from (InterpreterCandidate(python, VIRTUALENV) for python in activated)
    yield from (InterpreterCandidate(python, PATH) for python in on_path if python)


def _iter_activated(env: Mapping[str, str]) -> Iterator[str]:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if env.get(name, "").startswith("/"):
            yield from _iter_python_in(env[name])
    for folder in dict.fromkeys([os.getcwd(), env.get("HOME") or os.path.expanduser("~")]):
        if os.path.isfile(f"{folder}/.venv/pyvenv.cfg"):
            yield from _iter_python_in(f"{folder}/.venv")


def _iter_python_in(prefix: str) -> Iterator[str]:
    for name in ("python3", "python"):
        if os.access(path := f"{prefix.rstrip('/')}/bin/{name}", os.X_OK):
            yield path
            return


def _iter_kernelspecs(
    env: Mapping[str, str], servers: Sequence[tuple[str, Mapping[str, str]]], outside: Sequence[str]
) -> Iterator[InterpreterCandidate]:
    """Yield kernelspecs; of several with one name, the first that Jupyter would find. A running server's search path is
    the most reliable one."""
    seen, number = set[str](), 0
    for python, variables in [*servers, *((python, env) for python in outside)]:
        prefix = user_processes.get_prefix(python)
        folders = user_processes.list_data_folders(variables, prefix)
        for folder in [*(f"{one}/kernels" for one in folders), f"{variables.get('HOME', '')}/.ipython/kernels"]:
            for name in _list_kernel_names(folder):
                if name in seen or number >= MAX_KERNELS:
                    continue
                seen.add(name)
                number += 1
                started_by = servers[0][0] if servers else _find_prefix_python(folder) or python
                if leads_to := _read_interpreter(f"{folder}/{name}/kernel.json", started_by):
                    yield InterpreterCandidate(leads_to, KERNELSPEC, name)
        if NATIVE_KERNEL not in seen and any(python == one for one, _ in servers):
            seen.add(NATIVE_KERNEL)
            yield InterpreterCandidate(python, KERNELSPEC, NATIVE_KERNEL)


def _list_kernel_names(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(10 * MAX_KERNELS))]  # noqa: B905 (newer than 3.9)
    except OSError:
        return []
    return sorted(name for name in names if _NAME.fullmatch(name) and os.path.isfile(f"{folder}/{name}/kernel.json"))


def _find_prefix_python(folder: str) -> str:
    """Return the interpreter of the prefix that has `<prefix>/share/jupyter/kernels`."""
    prefix = folder[: -len("/share/jupyter/kernels")] if folder.endswith("/share/jupyter/kernels") else ""
    return next(iter(_iter_python_in(prefix)), "") if prefix and prefix != "/usr/local" else ""


def _is_script(path: str) -> bool:
    """Return True for scripts, such as pyenv's shims, which take 0.2 s to find the interpreter."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _read_interpreter(path: str, started_by: str) -> str:
    """Return what a kernelspec's `argv` starts. Jupyter replaces the word `python`, `python3` or `python3.X` by its own
    interpreter, `started_by` (jupyter_client, `KernelManager.format_kernel_cmd`). The interpreter of another program
    that starts a kernel is unknown until the kernel runs."""
    try:
        with open(path, "rb") as file:
            spec = json.loads(file.read(MAX_SPEC_BYTES))
        words = [word for word in spec["argv"] if isinstance(word, str)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
    if not words or not user_processes.is_python(words[0]):
        return ""
    if words[0].startswith("/"):
        return words[0]
    return started_by if "/" not in words[0] else ""
