"""Run the checks that need a GPU from the kit of `make gpu-kit`, on a machine without a network (`make gpu-check`).

    python3 scripts/gpu_check.py [--keep] [--clean] [options of `python -m tests.gpu --help`]

Standard library only, any Python from 3.11 on: it finds the Python that has PyTorch, and makes a virtual environment of
that version in `build/gpu-check` with the kit's packages; the packages of the Python that has PyTorch come after them.
Where both have a package, the kit's is used, as the platform was tested with it. Then it starts `python -m tests.gpu`
there, forwards signals to it, and afterwards ends every process and removes everything that the run created, except for
the results (`gpu-check.json`, `gpu-check.md`) and the logs (`logs/`).

The exit code is that of `tests.gpu`, 2 where nothing could be started, 128 + the signal's number where a signal ended
it.
"""

import argparse
import ctypes
import hashlib
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KIT = ROOT / "build" / "gpu-kit"
WORK = ROOT / "build" / "gpu-check"
DIST = ROOT / "frontend" / "dist"
SITE, CONSOLE = "site.tar.xz", "console.tar.xz"
PYTHONS = ("3.12", "3.11")
"""The versions that a kit can be made for; the first one unless another is asked for."""
RESULTS = ("gpu-check.json", "gpu-check.md", "logs")
STAMP_FILE = "made.json"
"""Says, while a run lasts, what of the project's own folders was there before it."""
CANDIDATES = (
    "/opt/*/bin/python3", "/opt/*/.venv/bin/python3", "/opt/*/venv/bin/python3", "/opt/*/envs/*/bin/python3",
    "/usr/local/bin/python3", "/usr/bin/python3",
)  # fmt: skip
"""Where images with PyTorch have their Python, where it is not on the PATH."""
SET_CHILD_SUBREAPER = 36  # prctl(2)

PROBE = """
import json, sys
from importlib.metadata import distributions
found = {}
for one in distributions():
    if one.metadata["Name"]:
        found.setdefault(one.metadata["Name"].lower().replace("_", "-").replace(".", "-"), one.version)
site = [path for path in sys.path if path.endswith("-packages")]
print(json.dumps({"version": "%d.%d" % sys.version_info[:2], "site": site, "packages": found}))
"""
"""What a Python is and has; nothing of it is imported, as PyTorch alone takes seconds."""


class GpuCheckError(Exception):
    """The checks cannot be started; the message says what to do."""


def print_line(text: str) -> None:
    print(f"gpu-check | {text}", flush=True)


# The kit --------------------------------------------------------------------------------------------------------------


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file. Raise OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_kit(folder: Path) -> dict[str, Any]:
    """Return the content of kit.json. Raise GpuCheckError where the kit is missing or incomplete."""
    make = "Run `make gpu-kit` where pip reaches a package index, and carry build/gpu-kit here"
    try:
        kit: dict[str, Any] = json.loads((folder / "kit.json").read_text("utf-8"))
        archives = dict(kit["archives"])
    except FileNotFoundError:
        raise GpuCheckError(f"There is no kit in {folder}. {make}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GpuCheckError(
            f"{folder / 'kit.json'} is not what `make gpu-kit` writes ({error}). {make} again."
        ) from None
    for name, about in archives.items():
        try:
            found = hash_file(folder / name)
        except OSError as error:
            raise GpuCheckError(f"{folder / name}: {error.strerror}. {make} whole.") from None
        if found != about["sha256"]:
            raise GpuCheckError(f"{folder / name} has SHA-256 {found}, kit.json says {about['sha256']}. {make} again.")
    return kit


# The Python that has PyTorch ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PythonInstallation:
    """A Python: its program, its version (3.12), its package folders, and its packages with their versions."""

    program: str
    version: str
    site: tuple[str, ...]
    packages: dict[str, str]


def probe_python(program: str) -> PythonInstallation | None:
    """Return the facts about a Python; None where it does not run."""
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    try:
        done = subprocess.run([program, "-c", PROBE], check=False, capture_output=True, cwd="/", env=env, timeout=60)
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return PythonInstallation(program, said["version"], tuple(said["site"]), said["packages"])


def list_candidates() -> Iterator[str]:
    """Return programs that may be the Python that has PyTorch, without duplicates."""
    names = ["python3", *(f"python{version}" for version in PYTHONS), "python"]
    folders = os.get_exec_path()
    on_path = [found for name in names for folder in folders if (found := shutil.which(name, path=folder))]
    # One file may be two Pythons: a virtual environment's is a link to the one that it was made with.
    yield from dict.fromkeys([sys.executable, *on_path, *(path for one in CANDIDATES for path in sorted(glob(one)))])


def choose_python(found: Sequence[PythonInstallation], version: str) -> PythonInstallation:
    """Return the first Python of this version that has PyTorch, else the first one with NumPy, without which the
    platform does not start. Raise GpuCheckError where there is none."""
    right = [one for one in found if one.version == version]
    for name in ("torch", "numpy"):
        for one in right:
            if name in one.packages:
                return one
    what = f"The kit is for Python {version}"
    for one in found:
        if "torch" in one.packages:
            made = f"make gpu-kit PYTHON={one.version}"
            remedy = f"Make one for that version: `{made}`" if one.version in PYTHONS else f"Install Python {version}"
            raise GpuCheckError(f"{what}, but PyTorch is here for Python {one.version} ({one.program}). {remedy}.")
    if right:
        raise GpuCheckError(f"{what}: {right[0].program} has neither PyTorch nor NumPy. Name the Python that has them "
                            "with --python.")  # fmt: skip
    seen = ", ".join(f"{one.program} ({one.version})" for one in found) or "none"
    raise GpuCheckError(f"{what}, and no such Python is here; found: {seen}. Name one with --python.")


# The environment ------------------------------------------------------------------------------------------------------


def unpack_archive(archive: Path, folder: Path) -> None:
    """Unpack the archive. Raise GpuCheckError where the disk is full or the archive is damaged."""
    try:
        with lzma.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extraction_filter = getattr(tarfile, "tar_filter", None)  # 3.11.0 has no filters
            tar.extractall(folder)
    except (OSError, lzma.LZMAError, tarfile.TarError) as error:
        raise GpuCheckError(f"{archive} cannot be unpacked into {folder}: {error}.") from error


def make_environment(kit: Path, python: PythonInstallation, folder: Path) -> Path:
    """Make a virtual environment with the kit's packages before those of this Python, unless an earlier run made it;
    return its Python. Raise GpuCheckError."""
    program, made_from = folder / "bin" / "python", folder / "made-from"
    wanted = json.dumps([hash_file(kit / SITE), python.program, python.site, str(ROOT)])
    if made_from.is_file() and made_from.read_text("utf-8") == wanted:
        return program
    shutil.rmtree(folder, ignore_errors=True)
    command: list[str | Path] = [python.program, "-m", "venv", "--without-pip", folder]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode:
        raise GpuCheckError(f"`{python.program} -m venv` failed (Debian: python3-venv): {made.stdout}{made.stderr}")
    # Straight into the environment: a rank may read what lies below its interpreter's prefix.
    unpack_archive(kit / SITE, folder)
    site = folder / "lib" / f"python{python.version}" / "site-packages"
    lines = [str(ROOT), str(ROOT / "platform"), *(f"import site; site.addsitedir({path!r})" for path in python.site)]
    (site / "gpu-check.pth").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    _point_scripts(folder / "bin", program)
    compile_all(program, [folder / "lib"])
    made_from.write_text(wanted, encoding="utf-8")
    return program


def _point_scripts(folder: Path, program: Path) -> None:
    """Rewrite the first line of the environment's scripts, which names the Python that runs them. The kernel takes no
    path that has spaces or is long (execve(2)): such a script is started by a shell, and Python reads its line as a
    string."""
    start = f"#!/bin/sh\n'''exec' \"{program}\" \"$0\" \"$@\"\n' '''\n".encode()
    for path in folder.iterdir():
        if not path.is_symlink() and path.read_bytes()[:2] == b"#!":
            first, _, rest = path.read_bytes().partition(b"\n")
            if b"python" in first:
                path.write_bytes(start + rest)


def compile_all(program: Path, folders: Sequence[Path]) -> None:
    """Write bytecode, as an installation does: processes of another user may not write it, and would compile at every
    start."""
    command: list[str | Path] = [program, "-m", "compileall", "-q", "-j", "0", *folders]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# Leaving nothing behind -----------------------------------------------------------------------------------------------


def list_bytecode_folders() -> set[Path]:
    """Return the bytecode folders of the project's own modules."""
    found = set()
    for folder, folders, _ in os.walk(ROOT):
        if "__pycache__" in folders:
            found.add(Path(folder, "__pycache__"))
        folders[:] = [name for name in folders if name not in {".git", ".venv", "build", "node_modules", "__pycache__"}]
    return found


def delete_leftovers(work: Path, keep: Sequence[str] = ()) -> None:
    """Delete what this run, or a killed earlier one, left apart from the results, except for what `keep` names."""
    for path in work.iterdir() if work.is_dir() else ():
        if path.name not in {*RESULTS, STAMP_FILE, *keep}:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    with suppress(OSError, ValueError):
        made = json.loads((work / STAMP_FILE).read_text("utf-8"))
        new = list_bytecode_folders() - {Path(path) for path in made["bytecode"]}
        for folder in [*new, *([DIST] if made["console"] else [])]:
            shutil.rmtree(folder, ignore_errors=True)
        (work / STAMP_FILE).unlink()


def list_descendants(root: int) -> list[int]:
    """Return the living descendants of this process, from /proc (proc(5))."""
    below: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            state, parent = Path("/proc", name, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                below.setdefault(int(parent), []).append(int(name))
    found, look = [], [root]
    while look:
        children = below.get(look.pop(), [])
        found += children
        look += children
    return found


def kill_descendants() -> int:
    """Kill all descendants of this process and return how many there were."""
    ended = set()
    while left := list_descendants(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(left)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)
    return len(ended)


def run_command(command: Sequence[str | Path], env: dict[str, str]) -> int:
    """Run the command and return its exit code. The first signal to end is forwarded to it, the second one kills it.
    Orphaned descendants become children of this process (PR_SET_CHILD_SUBREAPER), so that none is lost."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
    asked: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL if asked else number)
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    while True:
        pid, status = os.waitpid(-1, 0)  # of others, too: they would stay as zombies
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return 128 + asked[0] if asked else child.returncode if child.returncode >= 0 else 128 - child.returncode


# ----------------------------------------------------------------------------------------------------------------------


def prepare_python(python: str | None) -> Path:
    """Make everything that the checks run with and return the Python to run them. Raise GpuCheckError."""
    began = time.monotonic()
    kit = read_kit(KIT)
    if kit.get("requirements") != hash_file(ROOT / "requirements.txt"):
        print_line("note: the kit was made from another requirements.txt than this one; `make gpu-kit` makes a new one")
    found: list[PythonInstallation] = []
    for one in filter(None, map(probe_python, [python] if python else list_candidates())):
        found.append(one)
        if one.version == kit["python"] and "torch" in one.packages:
            break
    chosen = choose_python(found, kit["python"])
    torch = chosen.packages.get("torch")
    what = f"PyTorch {torch}" if torch else "no PyTorch: what needs it is skipped"
    print_line(f"{chosen.program}: Python {chosen.version}, {what}")
    WORK.mkdir(parents=True, exist_ok=True)
    there = {"console": not DIST.exists(), "bytecode": [str(path) for path in list_bytecode_folders()]}
    (WORK / STAMP_FILE).write_text(json.dumps(there), encoding="utf-8")
    if there["console"]:
        unpack_archive(KIT / CONSOLE, DIST)
    program = make_environment(KIT, chosen, WORK / "env")
    compile_all(program, [ROOT / "platform", ROOT / "apps"])
    there_too = {name: chosen.packages[name] for name in kit["packages"] if name in chosen.packages}
    if other := [name for name, version in there_too.items() if version != kit["packages"][name]]:
        print_line("in the kit's version, not that of the machine: "
            + ", ".join(f"{name} {kit['packages'][name]} (not {there_too[name]})" for name in other))  # fmt: skip
    print_line(f"prepared in {time.monotonic() - began:.0f} s")
    return program


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="gpu_check.py", description=(__doc__ or "").partition("\n")[0], allow_abbrev=False,
        epilog="All other words go to `python -m tests.gpu`; -h after `--` shows them.",
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the environment, in build/gpu-check/env")
    parser.add_argument("--clean", action="store_true", help="only remove what an earlier run left behind")
    parser.add_argument("--python", help="the Python that has PyTorch, where it is not found")
    options, rest = parser.parse_known_args(words)
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in ends:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    keep = ["env"] if options.keep else []
    try:
        delete_leftovers(WORK, [] if options.clean else ["env"])
        if options.clean:
            return 0
        program = prepare_python(options.python)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}
        for name in ("PYTHONHOME", "VIRTUAL_ENV"):
            env.pop(name, None)
        return run_command([program, "-m", "tests.gpu", "--work", WORK, *(word for word in rest if word != "--")], env)
    except GpuCheckError as error:
        print_line(str(error))
        return 2
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_IGN)
        if left := kill_descendants():
            print_line(f"{left} processes still ran and were ended")
        delete_leftovers(WORK, keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
