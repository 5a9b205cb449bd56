"""An environment's own interpreter: a virtual environment on its disk, on top of another interpreter, whose packages it
can import.

    python -m fermi.envd.interpreter BASE FOLDER

Packages that `pip install` puts there outlive the run, and training inside of the environment imports them. Created
again if the base is another one than before; installed packages stay. Prints `{"folder": …}`, or `{"code": …, "params":
…}` and exits with 1. Standard library only, Python 3.9 or later.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from fermi.runner import package_cache
from fermi.runner.venv import MADE_NAME

OWN_FOLDER = os.path.join(".fermi", "python")
"""Below the environment's home."""
MAX_HEAD_BYTES = 300  # bytes
PROGRAM_HEAD = "#!/bin/sh\n# made by Fermi: a program of the interpreter below this one, with the packages of both\n"


def make_interpreter(base: str, folder: Path) -> None:
    """Make `folder` a virtual environment on top of `base`, unless it is one. Raises PackagesError and OSError."""
    base = shutil.which(base) or base
    about = package_cache.describe_python(base)
    wanted = json.dumps({"base": base, "about": about})
    if _read_beginning(folder / MADE_NAME, len(wanted) + 1) == wanted.encode():
        return
    programs, made = folder / "bin", str(folder / "bin" / "python")
    programs.mkdir(parents=True, exist_ok=True)
    for path in programs.iterdir():
        if path.name.startswith("python") or _read_beginning(path).startswith(PROGRAM_HEAD.encode()):
            path.unlink()
    _run_command([base, "-m", "venv", "--system-site-packages", "--without-pip", str(folder)])
    package_cache.link_base_packages(made, about[3])
    for program in Path(base).parent.iterdir():
        if _is_python_program(program):
            _write_program(programs / program.name, made, str(program))
    if subprocess.run([made, "-c", "import pip"], check=False, capture_output=True).returncode:
        subprocess.run([made, "-m", "ensurepip", "--default-pip"], check=False, capture_output=True)
    else:
        _write_program(programs / "pip", made, "-m", "pip")
    (folder / MADE_NAME).write_text(wanted, encoding="utf-8")  # last


def _is_python_program(program: Path) -> bool:
    head = _read_beginning(program)
    return head.startswith(b"#!") and b"python" in head and os.access(program, os.X_OK)


def _read_beginning(path: Path, size: int = MAX_HEAD_BYTES) -> bytes:
    """Return the beginning of a file; empty if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _write_program(path: Path, *words: str) -> None:
    """Write a program unless one was installed under this name."""
    if not path.exists():
        path.write_text(f'{PROGRAM_HEAD}exec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)


def _run_command(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise package_cache.PackagesError("PACKAGES_FAILED", output=(done.stderr or done.stdout)[-2000:])


def main(base: str, folder: str) -> int:
    """Create the environment and return the exit code."""
    try:
        make_interpreter(base, Path(folder))
    except package_cache.PackagesError as error:
        print(json.dumps({"code": "PYTHON_NOT_MADE", "params": {"python": base, "why": str(error.params["output"])}}))
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        print(json.dumps({"code": "PYTHON_NOT_MADE", "params": {"python": base, "why": str(error)}}))
        return 1
    print(json.dumps({"folder": folder}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
