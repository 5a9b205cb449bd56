"""Test frameworks that need more than `make test` installs (`make test-frameworks`, or `… ONLY=horovod`).

Each framework gets a virtual environment of its own that sees the project's packages, PyTorch among them, and adds
those in FRAMEWORKS. Environments and built wheels are kept in `build/frameworks`, or in the folder FERMI_FRAMEWORKS
names.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("FERMI_FRAMEWORKS") or ROOT / "build" / "frameworks").resolve()
HOROVOD = "horovod==0.28.1"


class FrameworkError(Exception):
    """A framework cannot be prepared; the message is for the person at the terminal."""


@dataclass(frozen=True)
class Framework:
    """A framework to test. `requirements` come from PyPI; then `build` may build wheels from source with the
    environment's Python."""

    requirements: tuple[str, ...]
    tests: tuple[str, ...]
    build: Callable[[Path], list[Path]] = lambda _: []


# Horovod --------------------------------------------------------------------------------------------------------------

CPP17 = """\
#!/bin/sh
# Horovod asks for C++14, PyTorch's headers need C++17.
for word do
  shift
  [ "$word" = -std=c++14 ] && word=-std=c++17
  set -- "$@" "$word"
done
exec g++ "$@"
"""


def build_horovod(python: Path) -> list[Path]:
    """Build its wheel against this PyTorch: about four minutes on two cores, then kept."""
    name = f"{HOROVOD}-torch-{version('torch')}-{sys.implementation.cache_tag}-{platform.machine()}"
    kept = CACHE / "wheels" / name.replace("==", "-")
    if not kept.is_dir():
        require_programs("g++", "make")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            compiler, made = Path(folder, "c++"), Path(folder, "made")
            compiler.write_text(CPP17, encoding="utf-8")
            compiler.chmod(0o755)
            env = {
                **os.environ,
                "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
                "CXX": str(compiler),
                "MAKEFLAGS": f"-j{os.cpu_count()}",
                "HOROVOD_WITH_PYTORCH": "1",
                "HOROVOD_WITH_GLOO": "1",
                "HOROVOD_WITHOUT_MPI": "1",
                "HOROVOD_WITHOUT_TENSORFLOW": "1",
                "HOROVOD_WITHOUT_MXNET": "1",
            }
            print_line(f"building {HOROVOD} (minutes, the first time)")
            options = ("--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-binary", "horovod")
            run_pip(python, "wheel", *options, "--wheel-dir", made, HOROVOD, env=env)
            made.rename(kept)
    return sorted(kept.glob("*.whl"))


FRAMEWORKS: dict[str, Framework] = {
    "horovod": Framework(
        requirements=("setuptools<81", "wheel", "cmake==3.31.*", "cffi", "cloudpickle", "psutil", "packaging"),
        build=build_horovod,
        tests=("tests/unit/frameworks/test_horovod.py", "tests/e2e/test_train_horovod.py"),
    ),
    "megatron": Framework(
        requirements=("megatron-core==0.16.1",),
        tests=("tests/unit/frameworks/test_megatron.py", "tests/e2e/test_train_megatron.py"),
    ),
}


# Preparing ------------------------------------------------------------------------------------------------------------


def print_line(text: str) -> None:
    print(f"test-frameworks | {text}", flush=True)


def prepare_framework(name: str, framework: Framework) -> Path:
    """Make or update the framework's environment and return its Python."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    wanted = [sys.version, sys.prefix, *framework.requirements]
    stamp = folder / "made-from"
    if not stamp.is_file() or stamp.read_text() != "\n".join(wanted):
        print_line(f"{name}: making its environment")
        shutil.rmtree(folder, ignore_errors=True)
        run_command([sys.executable, "-m", "venv", folder], "Making a virtual environment (Debian: python3-venv)")
        inner, outer = (find_site_packages(at) for at in (folder, Path(sys.prefix)))
        (inner / "project.pth").write_text(f"{outer}\n")  # comes after the environment's own packages
        run_pip(python, "install", "--upgrade", *framework.requirements)
        stamp.write_text("\n".join(wanted))
    if wheels := framework.build(python):
        run_pip(python, "install", "--no-deps", "--no-index", *wheels)
    return python


def find_site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def require_programs(*packages: str) -> None:
    """Install missing system programs from the Debian packages of the same name. Raise FrameworkError where one is
    still missing."""
    if not (missing := [package for package in packages if not shutil.which(package)]):
        return
    if shutil.which("apt-get") and os.getuid() == 0:
        print_line(f"installing {', '.join(missing)} with apt-get")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=env, check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], env=env, check=False)
    if missing := [package for package in missing if not shutil.which(package)]:
        raise FrameworkError(
            f"{' and '.join(missing)} must be installed first: only root on Debian can do that from here."
        )


def run_pip(python: Path, *words: str | Path, env: dict[str, str] | None = None) -> None:
    run_command([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], f"pip {words[0]}", env)


def run_command(command: list[str | Path], what: str, env: dict[str, str] | None = None) -> None:
    """Run the command; show its output only where it fails, and then raise FrameworkError."""
    done = subprocess.run(command, env=env, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        print(done.stdout, flush=True)
        raise FrameworkError(f"{what} failed; what it said is above.")


# Testing --------------------------------------------------------------------------------------------------------------


def run_framework_tests(name: str) -> str:
    """Run the framework's tests and return one line with the result."""
    framework, began = FRAMEWORKS[name], time.monotonic()
    print(f"\n=== {name} ===", flush=True)
    try:
        python = prepare_framework(name, framework)
    except FrameworkError as failure:
        return f"FAILED: {failure}"
    ready = time.monotonic()
    code = subprocess.run([python, "-m", "pytest", *framework.tests], cwd=ROOT, check=False).returncode
    how = "passed" if code == 0 else f"FAILED (code {code})"
    return f"{how} in {time.monotonic() - ready:.0f} s (preparing: {ready - began:.0f} s)"


def main(names: list[str]) -> int:
    if unknown := set(names) - set(FRAMEWORKS):
        print(f"There is no framework {', '.join(sorted(unknown))} here; there are: {', '.join(FRAMEWORKS)}.")
        return 2
    results = {name: run_framework_tests(name) for name in names or FRAMEWORKS}
    print("\n=== make test-frameworks ===")
    for name, result in results.items():
        print(f"{name:<28} {result}")
    return 1 if any(result.startswith("FAILED") for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(os.environ.get("ONLY", "").split()))
