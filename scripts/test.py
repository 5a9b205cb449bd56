"""All tests (`make test`): Python on SQLite, Python on PostgreSQL + Redis, the console, the console in a browser.

What a part needs from the system is installed on Debian as root; elsewhere a part whose program is missing is left
out, and the end says so.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile"]  # what a file sets up is dear


def has_postgres() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or bool(shutil.which("initdb"))


def has_redis() -> bool:
    return bool(shutil.which("redis-server") or shutil.which("valkey-server"))


def has(program: str) -> Callable[[], bool]:
    return lambda: bool(shutil.which(program))


def has_jwt_plugin() -> bool:
    return any(Path("/usr/lib").glob("*/slurm*/auth_jwt.so"))


NEEDS: dict[str, Callable[[], bool]] = {
    "postgresql": has_postgres,
    "redis-server": has_redis,
    "chromium": has("chromium"),
    "slurm-wlm": has("slurmctld"),
    "slurmrestd": has("slurmrestd"),
    "slurm-wlm-jwt-plugin": has_jwt_plugin,
    "munge": has("munged"),
    "shellcheck": has("shellcheck"),
    "iproute2": lambda: bool(shutil.which("ip") and shutil.which("tc")),
    "iptables": has("iptables"),
}


@dataclass
class Part:
    name: str
    command: list[str]
    cwd: Path = ROOT
    env: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


ON_BOTH = ("api", "apps", "e2e", "faults")
"""Where tests touch the database; of those that start a platform, the ones marked `storage` run on both."""

PARTS = [
    Part("Python, SQLite", PYTEST),
    Part(
        "Python, PostgreSQL + Redis",
        [*PYTEST, "-m", "(not e2e and not faults) or storage", *(f"tests/{name}" for name in ON_BOTH)],
        env={"FERMI_TEST_DB": "postgres"},
        needs=("postgresql", "redis-server"),
    ),
    Part("console", ["npm", "test", "--silent"], ROOT / "frontend"),
    Part("console in a browser", ["npm", "run", "--silent", "e2e"], ROOT / "frontend", needs=("chromium",)),
]


def install_missing() -> None:
    """Debian's packages, as root. Never fails: what is missing afterwards is reported by the part that needs it."""
    missing = [package for package, there in NEEDS.items() if not there()]
    if not missing:
        return
    if not shutil.which("apt-get") or os.getuid() != 0:
        print(f"not root on Debian, so not installed: {', '.join(missing)}", flush=True)
        return
    print(f"installing {', '.join(missing)} with apt-get", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=env, check=False)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], env=env, check=False)


def run(part: Part) -> str:
    """One line: how the part went."""
    if missing := [package for package in part.needs if not NEEDS[package]()]:
        return f"left out: {', '.join(missing)} not installed"
    print(f"\n=== {part.name} ===", flush=True)
    began = time.monotonic()
    code = subprocess.run(part.command, cwd=part.cwd, env={**os.environ, **part.env}, check=False).returncode
    return f"{'passed' if code == 0 else f'FAILED (code {code})'} in {time.monotonic() - began:.0f} s"


def main() -> int:
    install_missing()
    results = {part.name: run(part) for part in PARTS}
    print("\n=== make test ===")
    for name, result in results.items():
        print(f"{name:<28} {result}")
    return 1 if any(result.startswith("FAILED") for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
