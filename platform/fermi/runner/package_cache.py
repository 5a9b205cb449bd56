"""A cache of Python packages on a node: one virtual environment per content, shared by all tasks that need the same.
Standard library only, Python 3.9 or later.

    <cache>/<name>/             a virtual environment on top of an interpreter: that one's packages need no second
                                installation
    <cache>/<name>/ready.json   written last; without it the environment is incomplete
    <cache>/<name>.lock         held by a process that builds it, checks for it, or removes it
    <cache>/<name>.used         held (shared) by processes that run with it

Of one cache, the least recently used environments are removed once it is larger than 50 GiB.

The name is computed from what it is made from: the interpreter, the requirements, the files that these include, and the
tree that they are in, if they name parts of it (`./lib`, `-e .`). A package that is installed as a link into a tree
serves only that tree.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fermi.runner.venv import BASE_NAME

LogLine = Callable[[str], None]

READY_NAME = "ready.json"
MAX_OUTPUT_LINES = 12
MAX_CACHE_BYTES = 50 << 30
MIN_UNUSED_SECONDS = 3600.0
_INCLUDED = re.compile(rb"^\s*(?:-r|--requirement|-c|--constraint)[=\s]\s*(\S+)", re.MULTILINE)
_LINKED = re.compile(r"\s*(?:-e|--editable)[=\s]\s*")
_LOCKED = re.compile(r'source = \{ (editable|directory|path) = "([^"]+)" \}')
_PROGRESS_LINE = re.compile(r"\s*(Collecting|Downloading|Building|Installing|Preparing|Resolved|Prepared|Installed) ")
_RETRY_LINE = re.compile(r"WARNING: Retrying \(")
_DESCRIBE_PROGRAM = (
    "import json, site, sys; "
    "print(json.dumps([sys.implementation.cache_tag, sys.prefix, sys.version, "
    "[*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]]))"
)


class PackagesError(Exception):
    """Packages cannot be installed. `code`: PACKAGES_…; `params` have the last output."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(f"{code}: {params}")
        self.code, self.params = code, params


def prepare_packages(python: str, requirements: str, kind: str, cache: Path, log: LogLine, tree: str = "") -> Path:
    """Return a folder whose `bin/python` has what the file `requirements` asks for, in addition to the packages of
    `python`. `kind`: `pip` for a file as pip reads it, `uv` for a `uv.lock` beside its `pyproject.toml`. `log` gets a
    line at each step. `tree`: identifies the folder around the file; another one if a file of it differs. Raises
    PackagesError."""
    about = describe_python(python)
    folder = Path(cache) / _compute_name(about, Path(requirements), kind, tree)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if _mark_used(folder):
        return folder
    with _lock_environment(folder, log):
        if not (folder / READY_NAME).exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _build_environment(python, about, Path(requirements), kind, folder, log)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            made = {
                "python": python,
                "requirements": Path(requirements).name,
                "kind": kind,
                "bytes": _measure_folder(folder),
            }
            Path(f"{folder}.used").touch()
            (folder / READY_NAME).write_text(json.dumps(made), encoding="utf-8")
    evict_environments(folder.parent, MAX_CACHE_BYTES)
    return folder


def has_local_packages(requirements: str, kind: str) -> bool:
    """Return True if parts of the folder around the file are to be installed, which are built in it. Raises
    PackagesError."""
    path = Path(requirements)
    return any(
        True
        for _, content in _read_contents(path, kind)
        for _ in _find_local_packages(path.parent, content.decode(errors="replace"), kind)
    )


def acquire_environment(folder: str) -> int:
    """Return a descriptor that keeps the environment from being removed while it is open; -1 if the folder is none of
    the cache."""
    try:
        used = os.open(f"{folder}.used", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(used, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(used)
        return -1
    return used


def evict_environments(cache: Path, max_bytes: int) -> None:
    """Remove the least recently used environments until the cache has at most `max_bytes` bytes; none that is in use,
    or was used within the hour: a task may be about to start with it."""
    found = []
    for ready in cache.glob(f"*/{READY_NAME}"):
        with suppress(OSError, ValueError, KeyError):
            found.append((ready.stat().st_mtime, json.loads(ready.read_text("utf-8"))["bytes"], ready.parent))
    total = sum(size for _, size, _ in found)
    for wanted_at, size, folder in sorted(found):
        if total <= max_bytes or wanted_at > time.time() - MIN_UNUSED_SECONDS:
            return
        if _remove_environment(folder, wanted_at):
            total -= size


def _remove_environment(folder: Path, wanted_at: float) -> bool:
    """Remove an environment unless it is in use, and return whether that was done."""
    locks: list[int] = []
    try:
        for name in ("lock", "used"):
            locks.append(os.open(f"{folder}.{name}", os.O_RDWR | os.O_CLOEXEC))
            fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / READY_NAME).stat().st_mtime != wanted_at:
            return False
        (folder / READY_NAME).unlink()  # from here on it is half-made
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return False
    finally:
        for lock in locks:
            os.close(lock)
    return True


def _mark_used(folder: Path) -> bool:
    """Return True if the environment is ready, and mark it as used now."""
    with suppress(OSError):
        lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # who makes or removes it has it alone
            os.utime(folder / READY_NAME)
            return True
        finally:
            os.close(lock)
    return False


def _measure_folder(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(above, name)).st_blocks * 512 for above, _, names in os.walk(folder) for name in names
    )


def describe_python(python: str) -> list[Any]:
    """Return an interpreter's cache tag, prefix, version and folders of packages. Raises PackagesError."""
    try:
        done = subprocess.run(
            [python, "-c", _DESCRIBE_PROGRAM], capture_output=True, text=True, timeout=120, check=True
        )
        found: list[Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise PackagesError(
            "PACKAGES_NO_PYTHON", python=python, output=_select_last_lines(said.splitlines())
        ) from error
    return found


def _compute_name(about: Sequence[Any], requirements: Path, kind: str, tree: str) -> str:
    digest, links = hashlib.sha256(json.dumps([kind, *about]).encode()), set[bool]()
    for name, content in _read_contents(requirements, kind):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
        links.update(_find_local_packages(requirements.parent, content.decode(errors="replace"), kind))
    if links:
        digest.update(f"\0{tree}\0{requirements.parent if True in links else ''}".encode())
    return digest.hexdigest()[:32]


def _read_contents(requirements: Path, kind: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file that the environment is made from, once."""
    wanted, seen = [requirements], set[Path]()
    if kind == "uv":
        wanted.append(requirements.parent / "pyproject.toml")
    while wanted:
        path = wanted.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            why = f"{path.name}: {error.strerror}"
            raise PackagesError("PACKAGES_NOT_READABLE", file=path.name, output=why) from error
        yield os.path.relpath(path, requirements.parent), content
        if kind == "pip":
            named = (name.decode(errors="replace") for name in _INCLUDED.findall(content))
            wanted += [path.parent / name for name in named if "://" not in name]


def _find_local_packages(folder: Path, content: str, kind: str) -> Iterator[bool]:
    """Yield, for each part of the tree that is to be installed, whether it is a link to its folder."""
    if kind == "uv":
        yield from (how == "editable" for how, where in _LOCKED.findall(content) if where != ".")
        return
    for line in content.splitlines():
        linked = _LINKED.match(line)
        word = line[linked.end() if linked else 0 :].rpartition(" @ ")[2]
        word = re.split(r"[;\[]|\s#", word)[0].strip()
        is_path = (word.startswith(".") or "/" in word) and not word.startswith("-") and "://" not in word
        if word.startswith("file:") or (is_path and os.path.exists(folder / word)):
            yield bool(linked)


@contextmanager
def _lock_environment(folder: Path, log: LogLine) -> Iterator[None]:
    """Lock the environment: the first process builds it, and the others wait, however the builder ends."""
    lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("waiting for another that prepares the same")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _build_environment(
    python: str, about: Sequence[Any], requirements: Path, kind: str, folder: Path, log: LogLine
) -> None:
    log("making a virtual environment")
    has_pip = subprocess.run([python, "-m", "pip", "--version"], check=False, capture_output=True).returncode == 0
    bare = ["--without-pip"] if has_pip else []
    _run_command([python, "-m", "venv", "--system-site-packages", *bare, str(folder)], log)
    made = str(folder / "bin" / "python")
    link_base_packages(made, about[3])
    pip = [python, "-m", "pip", "--python", made] if has_pip else [made, "-m", "pip"]
    if kind == "uv":
        uv = _find_uv(python)
        exported = folder / "requirements.txt"
        wanted = ["--frozen", "--no-emit-project", "--no-dev", "--quiet"]
        _run_command([*uv, "export", *wanted, "--output-file", str(exported)], log, str(requirements.parent))
        _run_command([*uv, "pip", "install", "--python", made, "-r", str(exported)], log, str(requirements.parent))
    else:
        quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        _run_command([*pip, "install", *quiet, "-r", str(requirements)], log, str(requirements.parent))


def link_base_packages(python: str, folders: Sequence[str]) -> None:
    """Let the interpreter `python` import packages from these folders, after its own. Needed if its base interpreter is
    in a virtual environment itself."""
    look = "import site; print(site.getsitepackages()[0])"
    own = subprocess.run([python, "-c", look], capture_output=True, text=True, check=True).stdout.strip()
    lines = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders if folder != own)
    Path(own, BASE_NAME).write_text(lines, encoding="utf-8")


def _find_uv(python: str) -> list[str]:
    if found := shutil.which("uv"):
        return [found]
    if subprocess.run([python, "-m", "uv", "--version"], check=False, capture_output=True).returncode == 0:
        return [python, "-m", "uv"]
    raise PackagesError(
        "PACKAGES_NO_UV", output="uv.lock needs uv on this node (pip install uv), or a requirements.txt"
    )


def _run_command(command: Sequence[str], log: LogLine, cwd: str | None = None) -> None:
    tail: deque[str] = deque(maxlen=200)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd
        )
    except OSError as error:
        raise PackagesError("PACKAGES_FAILED", output=f"{command[0]}: {error.strerror}") from error
    assert process.stdout
    with process:
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            tail.append(line)
            if _PROGRESS_LINE.match(line):
                log(line.strip())
    if process.returncode:
        raise PackagesError("PACKAGES_FAILED", output=_select_last_lines(tail))


def _select_last_lines(lines: Sequence[str] | deque[str]) -> str:
    """Return the last lines that are not empty; of pip's attempts at the index (five for each package) only the
    newest."""
    told = [line for line in lines if line.strip()]
    newest = max((at for at, line in enumerate(told) if _RETRY_LINE.match(line)), default=0)
    return "\n".join(
        [line for at, line in enumerate(told) if at == newest or not _RETRY_LINE.match(line)][-MAX_OUTPUT_LINES:]
    )
