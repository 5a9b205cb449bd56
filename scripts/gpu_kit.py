"""Fill `build/gpu-kit` with what `make gpu-check` needs on a machine without a network (`make gpu-kit`).

    python scripts/gpu_kit.py [3.12 | 3.11]

The argument is the Python of that machine, an x86-64 Linux. The kit contains:

    site.tar.xz     the packages of requirements.txt for that Python, without PyTorch and its dependencies, laid out as
                    in a virtual environment
    console.tar.xz  the built console
    data/           small files that a check reads, one folder for each; see DATA
    kit.json        versions, sizes, SHA-256 of the archives, and what was left out with the reason

Fails where the kit and the files that git tracks are larger than MAX_BYTES together: both have to be carried.
"""

import fnmatch
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.markers import Marker

from scripts.gpu_check import CONSOLE, DIST, KIT, PYTHONS, ROOT, SITE, hash_file
from scripts.sbom import PIN

MAX_BYTES = 60 * 2**20
LOCK = ROOT / "requirements.txt"
AS_SOURCE = ("deepspeed",)
"""Comes as source: taken as it is installed here, which holds for any Python as long as nothing in it is compiled."""
BEYOND_THE_LOCK = {
    "megatron-core": (
        "0.16.1",
        {
            "3.11": "38f6bef63cd4ebc4c39c1eccbaf578596accba5c47d012faffa0670913aec131",
            "3.12": "3fb26cb407aa3c4b609c08664022c08146f1648b3d6f2ef2bbe9d3b1294ace61",
        },
    ),
}
"""Version, and the SHA-256 of the wheel for each Python: what `make test-frameworks` installs and the lock has not."""
EXCLUDED_PACKAGES = {
    "torch": "the machine has it, built for its GPU",
    "triton": "comes with PyTorch",
    "setuptools": "comes with PyTorch, which of this package takes some versions only",
    "nvidia-*": "comes with PyTorch",
    "cuda-*": "comes with PyTorch",
    "numpy": "the machine has it, as PyTorch was built for it",
    "sympy": "PyTorch needs it",
    "mpmath": "PyTorch needs it",
    "networkx": "PyTorch needs it",
    "jax": "the machine has it, or JAX is left out",
    "jaxlib": "as large as all that fits, and without CUDA",
    "ml-dtypes": "comes with JAX",
    "opt-einsum": "comes with JAX",
    "scipy": "comes with JAX; nothing else needs it",
}
"""Packages that are not carried, by name, and why."""
INCLUDED_PACKAGES = ("nvidia-ml-py",)
"""Packages that a pattern of LEFT_OUT would leave out."""
MANYLINUX = ("2_5", "2_12", "2_17", "2_24", "2_26", "2_27", "2_28", "2_31", "2_34", "2_35", "2_39")
PLATFORMS = [*(f"manylinux{name}_x86_64" for name in ("1", "2010", "2014")),
             *(f"manylinux_{version}_x86_64" for version in MANYLINUX)]  # fmt: skip
"""Wheels for glibc up to 2.39 (Ubuntu 24.04), by PEP 600's names and by the older ones."""
COMPILED = (".so", ".pyd", ".dylib", ".dll", ".a", ".o")


@dataclass(frozen=True)
class ExclusionRule:
    """Files to leave out of the archive: those that match `drop` and not `keep` (fnmatch, `*` crosses folders)."""

    reason: str
    drop: tuple[str, ...]
    keep: tuple[str, ...] = ()


EXCLUSION_RULES = (
    ExclusionRule("bytecode: made again on the machine", ("*.pyc",)),
    ExclusionRule("source maps of the browser's code", ("*.map",)),
    ExclusionRule("tests of the packages", ("*/tests/*", "tornado/test/*", "jupyterlab/galata/*")),
    ExclusionRule("types for checkers", ("*.pyi",), keep=("jedi/*",)),
    ExclusionRule("completion in notebooks of Django's own names", ("jedi/third_party/django-stubs/*",)),
    ExclusionRule(
        "sources of what is compiled",
        ("*.c", "*.cpp", "*.h", "*.hpp", "*.pxd", "*.pyx"),
        keep=("deepspeed/*",),
    ),
    ExclusionRule("for other systems", ("*.exe", "*.dll", "*.dylib", "*.pdb", "*.lib", "*.bat", "*.ps1")),
    ExclusionRule("sources of translations", ("*.po", "*.pot")),
    ExclusionRule(
        "languages that the platform does not speak",
        ("*/locale/*/*", "*/i18n/*/LC_MESSAGES/*", "babel/locale-data/*"),
        keep=("*/locale/en/*", "*/locale/zh_Hans/*", "*/locale/zh_CN/*", "*/i18n/en/*",
              "babel/locale-data/en*", "babel/locale-data/zh*", "babel/locale-data/root.dat"),
    ),
    ExclusionRule("the asynchronous client, which the platform does not use", ("kubernetes/aio/*",)),
    ExclusionRule("pages that show the API's document", ("drf_spectacular_sidecar/static/*",)),
    ExclusionRule("what a developer edits and builds again", ("jupyterlab/staging/yarn.lock", "*.json.orig")),
)  # fmt: skip
PRESET = 6
"""Of xz: 38 MiB in three minutes of a processor; 2 gives 44 MiB in one."""
DATA: dict[str, Callable[[Path], None]] = {}
"""What fills the folders of `data/`, by their name. A folder is empty when it is asked for, and its files count."""


class KitError(Exception):
    """The kit could not be made; the message is for the person at the terminal."""


def print_line(text: str) -> None:
    print(f"gpu-kit | {text}", flush=True)


# What it is made of ---------------------------------------------------------------------------------------------------


def choose_pins(lock: str, python: str) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return (version, lines for pip) by name for each package that the kit provides to a Linux with this Python, and
    the reasons why the others are left out."""
    machine = {
        "sys_platform": "linux", "os_name": "posix", "platform_system": "Linux", "platform_machine": "x86_64",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
        "python_version": python, "python_full_version": f"{python}.0",
    }  # fmt: skip
    carried, left_out = {}, {}
    for name, version, marker, hashes in PIN.findall(lock):
        if marker and not Marker(marker).evaluate(machine):
            left_out[name] = f"only where {marker}"
        elif reason := reason_to_leave_out(name):
            left_out[name] = reason
        else:
            carried[name] = (version, f"{name}=={version} \\{hashes}")
    return carried, left_out


def reason_to_leave_out(name: str) -> str:
    """Return why this package is left out; an empty string if it is not."""
    if name in INCLUDED_PACKAGES:
        return ""
    return next((reason for pattern, reason in EXCLUDED_PACKAGES.items() if fnmatch.fnmatchcase(name, pattern)), "")


def find_rule(path: str) -> ExclusionRule | None:
    """Return the rule that leaves out this file of the package folder; None if there is none."""
    for rule in EXCLUSION_RULES:
        dropped, kept = (any(fnmatch.fnmatchcase(path, one) for one in some) for some in (rule.drop, rule.keep))
        if dropped and not kept:
            return rule
    return None


# Filling it -----------------------------------------------------------------------------------------------------------


def download_packages(pins: Iterable[str], python: str, folder: Path) -> None:
    """Install the packages into the folder for that Python, whatever Python runs this. Raise KitError."""
    command: list[str | Path] = [
        *(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"),
        *("--require-hashes", "--no-deps", "--no-compile", "--only-binary", ":all:", "--target", folder),
        *("--python-version", python, "--implementation", "cp"),
        *(word for abi in (f"cp{python.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)),
        *(word for platform in PLATFORMS for word in ("--platform", platform)),
    ]  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(pins))
        file.flush()
        if subprocess.run([*command, "--requirement", file.name], check=False, cwd=ROOT).returncode:
            raise KitError(f"pip found no wheels of all packages for Python {python}; its message is above.")


def copy_installed(package: Distribution, folder: Path) -> None:
    """Copy the package's installed files. Raise KitError where one is compiled, and so works with this Python and
    machine only."""
    for file in package.files or ():
        if file.parts[0] == ".." or file.suffix == ".pyc":
            continue
        if file.suffix in COMPILED:
            raise KitError(f"{package.name} has the compiled file {file}, so that it cannot be carried as it is here.")
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file.locate(), folder / file)


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def delete_excluded(folder: Path) -> dict[str, int]:
    """Delete what RULES leave out and return the number of bytes by reason."""
    removed: dict[str, int] = {}
    for path in list_files(folder):
        if rule := find_rule(path.relative_to(folder).as_posix()):
            removed[rule.reason] = removed.get(rule.reason, 0) + path.stat().st_size
            path.unlink()
    return removed


def arrange_packages(target: Path, environment: Path, python: str) -> None:
    """Move what pip installed into a folder to where a virtual environment has it."""
    (environment / "lib" / f"python{python}").mkdir(parents=True)
    for name in ("bin", "etc", "share"):
        if (target / name).is_dir():
            (target / name).rename(environment / name)
    target.rename(environment / "lib" / f"python{python}" / "site-packages")


def pack_archive(folder: Path, archive: Path) -> None:
    """Write the archive; the same files give the same bytes. Files of one name are stored next to each other, as many
    are alike: clients of the versions of an API, copies of one file."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": PRESET, "dict_size": 64 * 2**20}]
    with lzma.open(archive, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for path in sorted(list_files(folder), key=lambda path: (path.suffix, path.name, path.as_posix())):
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size, entry.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(content))


# What it weighs -------------------------------------------------------------------------------------------------------


def measure_folder(folder: Path) -> int:
    return sum(path.stat().st_size for path in list_files(folder))


def measure_tracked() -> int:
    """Return the total size in bytes of the files that git tracks, as they are in the working tree. Raise KitError."""
    listed = run_git("ls-files", "-z").split("\0")
    return sum(path.stat().st_size for name in listed if name and (path := ROOT / name).is_file())


def run_git(*words: str) -> str:
    """Return git's output. Raise KitError."""
    done = subprocess.run(["git", "-C", ROOT, *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise KitError(
            f"`git {words[0]}` failed, so that it is not known what has to be carried: {done.stderr.strip()}"
        )
    return done.stdout


def check_size(kit: int, tracked: int) -> None:
    """Raise KitError where kit and tracked files together are larger than MAX_BYTES."""
    if kit + tracked > MAX_BYTES:
        raise KitError(
            f"The kit ({format_mib(kit)}) and the files that git tracks ({format_mib(tracked)}) are "
            f"{format_mib(kit + tracked)}, and at most {format_mib(MAX_BYTES)} can be carried. "
            "Leave out more: EXCLUDED_PACKAGES and EXCLUSION_RULES in scripts/gpu_kit.py."
        )


def format_mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


# ----------------------------------------------------------------------------------------------------------------------


def make_kit(python: str, kit: Path) -> None:
    """Fill the folder, which is empty. Raise KitError."""
    carried, left_out = choose_pins(LOCK.read_text("utf-8"), python)
    wheels = [lines for name, (_, lines) in carried.items() if name not in AS_SOURCE]
    for name, (version, digests) in BEYOND_THE_LOCK.items():
        carried[name] = (version, f"{name}=={version} --hash=sha256:{digests[python]}")
        wheels.append(carried[name][1])
    with tempfile.TemporaryDirectory(dir=kit.parent) as scratch:
        target, environment = Path(scratch, "target"), Path(scratch, "environment")
        print_line(f"{len(carried)} packages for Python {python}")
        download_packages(wheels, python, target)
        for name in AS_SOURCE:
            copy_installed(distribution(name), target)
        before = measure_folder(target)
        stripped = delete_excluded(target)
        after = measure_folder(target)
        arrange_packages(target, environment, python)
        print_line(f"{format_mib(before)}, of which {format_mib(before - after)} are not needed; packing")
        pack_archive(environment, kit / SITE)
    pack_archive(DIST, kit / CONSOLE)
    for name, fill in DATA.items():
        folder = kit / "data" / name
        folder.mkdir(parents=True)
        fill(folder)
    about: dict[str, Any] = {
        "python": python,
        "commit": run_git("rev-parse", "HEAD").strip(),
        "dirty": bool(run_git("status", "--porcelain", "--untracked-files=no")),
        "requirements": hash_file(LOCK),
        "packages": {name: version for name, (version, _) in sorted(carried.items())},
        "left_out": left_out,
        "stripped": {"reasons": stripped, "unpacked_bytes": after},
        "archives": {
            name: {"bytes": (kit / name).stat().st_size, "sha256": hash_file(kit / name)} for name in (SITE, CONSOLE)
        },
    }
    (kit / "kit.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def main(words: list[str]) -> int:
    python = words[0] if words else PYTHONS[0]
    if python not in PYTHONS:
        print(f"gpu-kit | A kit is made for Python {' or '.join(PYTHONS)}, not for {python}.")
        return 2
    began = time.monotonic()
    KIT.parent.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=KIT.parent) as scratch:
            new = Path(scratch, "kit")
            new.mkdir()
            make_kit(python, new)
            shutil.rmtree(KIT, ignore_errors=True)
            new.rename(KIT)
        for path in sorted(KIT.iterdir()):
            print_line(
                f"{path.name:<16} {format_mib(measure_folder(path) if path.is_dir() else path.stat().st_size):>10}"
            )
        kit, tracked = measure_folder(KIT), measure_tracked()
        print_line(f"{'tracked files':<16} {format_mib(tracked):>10}")
        bound, seconds = format_mib(MAX_BYTES), time.monotonic() - began
        print_line(f"{'to carry':<16} {format_mib(kit + tracked):>10}, at most {bound}; in {seconds:.0f} s")
        check_size(kit, tracked)
    except KitError as error:
        print(f"gpu-kit | {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
