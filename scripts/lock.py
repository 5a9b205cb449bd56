"""Compiles the dependency groups of pyproject.toml into pinned files (`make lock`).

requirements.txt holds what the platform and training run on, requirements-dev.txt what checks and tests add. Which
CUDA libraries PyTorch brings along depends on the machine, so they are never pinned: PyTorch is installed first and
names its own.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = "# Compiled from pyproject.toml ({groups}) by `make lock`; do not edit.\n"
OF_THE_MACHINE = re.compile(r"^(nvidia-(?!ml-py)|cuda-|triton\b)")
LOCAL_VERSION = re.compile(r"^(torch==[0-9.]+)\+\w+", re.MULTILINE)  # torch==2.13.0+cpu


def compile_groups(target: str, groups: list[str], *more: str) -> None:
    path = ROOT / target
    command = [
        *(sys.executable, "-m", "piptools", "compile", "--quiet", "--strip-extras", "--allow-unsafe"),
        *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
        *("--no-emit-trusted-host", "--no-emit-options", "--output-file", str(path), *more),
        *(arg for group in groups for arg in ("--extra", group)),
        "pyproject.toml",
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    pins = [
        line for line in path.read_text().splitlines() if line and line[0] != "#" and not OF_THE_MACHINE.match(line)
    ]
    text = LOCAL_VERSION.sub(r"\1", "\n".join(pins) + "\n")
    path.write_text(HEADER.format(groups=", ".join(["base", *groups])) + text)


if __name__ == "__main__":
    compile_groups("requirements.txt", ["server", "train", "notebook", "ssh"])
    compile_groups("requirements-dev.txt", ["dev"], "--constraint", "requirements.txt")
