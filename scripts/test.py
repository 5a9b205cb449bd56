"""All tests (`make test`): Python on SQLite, Python on PostgreSQL + Redis, the console, the console in a browser.

What a part needs from the system is installed on Debian as root; elsewhere a part whose program is missing is left
out, and the end says so. A part of which little failed has that run again, alone; the end names it all the same.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile"]  # what a file sets up is dear
AGAIN = [sys.executable, "-m", "pytest", "--last-failed", "--last-failed-no-failures", "none"]
FEW = 5
"""Tests of a part that may fail in company and pass alone (docs/decisions/0015): more are no accident."""


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
    again: list[str] = field(default_factory=list)
    """What runs the tests that failed once more, one at a time; of a part that is not pytest's, all of its tests."""


ON_BOTH = ("api", "apps", "e2e", "faults", "openapi")
"""Where tests touch the database; of those that start a platform, the ones marked `storage` run on both."""

WHERE_IT_MATTERS = ["-m", "(not e2e and not faults) or storage", *(f"tests/{name}" for name in ON_BOTH)]
BROWSER = ["npm", "run", "--silent", "e2e"]

PARTS = [
    Part("Python, SQLite", PYTEST, again=AGAIN),
    Part(
        "Python, PostgreSQL + Redis",
        [*PYTEST, *WHERE_IT_MATTERS],
        again=[*AGAIN, *WHERE_IT_MATTERS],
        env={"FERMI_TEST_DB": "postgres"},
        needs=("postgresql", "redis-server"),
    ),
    Part("console", ["npm", "test", "--silent"], ROOT / "frontend"),
    Part("console in a browser", BROWSER, ROOT / "frontend", needs=("chromium",), again=BROWSER),
]


def install_missing(needs: Mapping[str, Callable[[], bool]]) -> None:
    """Debian's packages, as root. Never fails: what is missing afterwards is reported by the part that needs it."""
    missing = [package for package, there in needs.items() if not there()]
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
    began, env = time.monotonic(), {**os.environ, **part.env}
    code, note = subprocess.run(part.command, cwd=part.cwd, env=env, check=False).returncode, ""
    failed = last_failed() if part.again[1:3] == ["-m", "pytest"] else ["see above"]
    if code == 1 and part.again and 0 < len(failed) <= FEW:
        print(f"\n=== {part.name}: what failed, again and alone ===", flush=True)
        code = subprocess.run(part.again, cwd=part.cwd, env=env, check=False).returncode
        note = f"; failed at first{'' if code else ' and passed again'}: {', '.join(failed)}"
    return f"{'passed' if code == 0 else f'FAILED (code {code})'} in {time.monotonic() - began:.0f} s{note}"


def last_failed() -> list[str]:
    """The tests of pytest's last run that did not pass."""
    try:
        return sorted(json.loads((ROOT / ".pytest_cache/v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def main() -> int:
    install_missing(NEEDS)
    results = {part.name: run(part) for part in PARTS}
    print("\n=== make test ===")
    for name, result in results.items():
        print(f"{name:<28} {result}")
    return 1 if any(result.startswith("FAILED") for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
