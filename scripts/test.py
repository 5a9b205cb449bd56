"""All tests (`make test`): Python on SQLite, Python on PostgreSQL + Redis, the console, the console in a browser.

What a part needs from the system is installed on Debian as root; elsewhere a part whose program is missing is left
out, and the end says so. A part of which little failed has that run again, alone; the end names it all the same.
What each test took stands in build/tests, one JUnit file a part; flaky tests, in tests/flaky.toml (`flaky_tests.py`).
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from scripts import flaky_tests, shares

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "build" / "tests"
REPORTED = [sys.executable, "-m", "pytest", "--junitxml={junit}", "-o", "junit_family=xunit1"]  # it names files
PYTEST = [*REPORTED, "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
"""Half of the time tests wait for a process to start or a grace to pass, so four keep two cores busy. Whole files,
because what a file sets up is dear, in the order of tests/conftest.py."""

AGAIN = [*REPORTED, "--last-failed", "--last-failed-no-failures", "none"]
FEW = 5
"""Tests of a part that may fail in company and pass alone (docs/decisions/0015): more are no accident."""
SLOWEST = 20


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
    "openssh-client": has("ssh"),
    "rsync": has("rsync"),
    "podman": has("podman"),
    "runc": has("runc"),
}


@dataclass
class Part:
    """`{junit}` in a command or a variable is the file for JUnit's XML."""

    name: str
    command: list[str]
    cwd: Path = ROOT
    env: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    again: Callable[[Collection[str]], list[str]] | None = None
    """The command that runs the tests of these names, which failed, once more, one at a time."""


@dataclass
class Result:
    said: str
    seconds: float = 0.0
    failed: bool = False
    tests: list[flaky_tests.Outcome] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)


ON_BOTH = ("api", "apps", "e2e", "faults", "openapi")
"""Where tests touch the database: those marked `database` run on both, with ALL=1 all but those that start a platform
and are not marked."""

ON_ONE = "--ignore=tests/openapi/test_every_operation.py"
"""Of two databases PostgreSQL refuses more of what requests hold, and they are many; `make check-api` asks both."""

ALL = bool(os.environ.get("FERMI_TEST_ALL"))
MARKED = "database or not (e2e or faults)" if ALL else "database"
WHERE_IT_MATTERS = ["-m", MARKED, *(f"tests/{name}" for name in ON_BOTH)]
CONSOLE = ["npm", "test", "--silent", "--", "--reporter=default", "--reporter=junit", "--outputFile.junit={junit}"]
BROWSER = ["node", "--test", "--test-concurrency=2"]
BROWSER_TESTS = ROOT / "frontend" / "e2e"


def files_again(failed: Collection[str]) -> list[str]:
    """Whole files, one after the other: a test in a browser goes on where the one before it ended. All that have a test
    of a name are run; every file, where none has it: then it stands in a module that they share."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(BROWSER_TESTS.glob("*.test.js"))}
    found = {name: [file for file, text in texts.items() if f'"{name}"' in text] for name in failed}
    files = {file for holds in found.values() for file in (holds or texts)}
    return ["node", "--test", "--test-concurrency=1", *(str(file) for file in sorted(files))]


REPORTERS = {"spec": "stdout", "junit": "{junit}"}
TO_FILE = " ".join(f"--test-reporter={name} --test-reporter-destination={to}" for name, to in REPORTERS.items())

PARTS = [
    Part("Python, SQLite", [*PYTEST, ON_ONE], again=lambda _: AGAIN),
    Part(
        "Python, PostgreSQL + Redis",
        [*PYTEST, *WHERE_IT_MATTERS],
        again=lambda _: [*AGAIN, *WHERE_IT_MATTERS],
        env={"FERMI_TEST_DB": "postgres"},
        needs=("postgresql", "redis-server"),
    ),
    Part("console", CONSOLE, ROOT / "frontend"),
    Part(
        "console in a browser",
        BROWSER,
        ROOT / "frontend",
        needs=("chromium",),
        env={"NODE_OPTIONS": TO_FILE, "FERMI_TEST_DATA": str(REPORTS)},
        again=files_again,
    ),
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


def run(part: Part) -> Result:
    if missing := [package for package in part.needs if not NEEDS[package]()]:
        return Result(f"left out: {', '.join(missing)} not installed")
    began = time.monotonic()
    code, tests = ask(part, part.command)
    failed, failed_again, note = [test.name for test in tests if test.failed], None, ""
    if code == 1 and part.again and 0 < len(failed) <= FEW:
        code, again = ask(part, part.again(failed), "what failed, again and alone")
        failed_again = {test.name for test in again if test.failed} if again else None
        note = f"; failed at first{'' if code else ' and passed again'}: {', '.join(failed)}"
    seconds = time.monotonic() - began
    said = f"{'passed' if code == 0 else f'FAILED (code {code})'} in {seconds:.0f} s{note}"
    return Result(said, seconds, code != 0, tests, flaky_tests.flaky(tests, failed_again))


def ask(part: Part, command: list[str], turn: str = "") -> tuple[int, list[flaky_tests.Outcome]]:
    """The exit code, and how each test went."""
    print(f"\n=== {part.name}{turn and f': {turn}'} ===", flush=True)
    words = re.findall(r"\w+", part.name) + ["again"] * bool(turn)
    junit = REPORTS / f"{'-'.join(words).lower()}.xml"
    junit.unlink(missing_ok=True)
    env = {name: value.replace("{junit}", str(junit)) for name, value in part.env.items()}
    asked = [word.replace("{junit}", str(junit)) for word in command]
    code = subprocess.run(asked, cwd=part.cwd, env={**os.environ, **env}, check=False).returncode
    return code, flaky_tests.read_junit(junit)


def slowest(tests: Iterable[tuple[str, flaky_tests.Outcome]]) -> list[str]:
    """A line for each, with its part."""
    found = sorted(tests, key=lambda each: -each[1].seconds)[:SLOWEST]
    return [f"{test.seconds:6.1f} s  {test.name}  ({part})" for part, test in found]


def browser_files() -> list[str]:
    files = sorted(BROWSER_TESTS.glob("*.test.js"))
    out = shares.left_out(files, shares.current())
    return [str(path) for path in files if path not in out]


def main() -> int:
    install_missing(NEEDS)
    if share := shares.chosen(os.environ, commit()):
        os.environ[shares.VARIABLE] = share
        print(f"of the long tests, share {share} of {shares.SHARES} (FERMI_TEST_SHARE; ALL=1: all)", flush=True)
    seeded = os.environ.setdefault("FERMI_TEST_SEED", seed(commit()))
    print(f"of long rows of cases, those of FERMI_TEST_SEED={seeded} (ALL=1: all)", flush=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would each compile the platform anew
    PARTS[-1].command += browser_files()
    REPORTS.mkdir(parents=True, exist_ok=True)
    results = {part.name: run(part) for part in PARTS}
    print(f"\n=== the {SLOWEST} slowest tests ===")
    print(*slowest((name, test) for name, result in results.items() for test in result.tests), sep="\n")
    print("\n=== make test ===")
    for name, result in results.items():
        print(f"{name:<28} {result.said}")
    for result in results.values():
        for test, why in flaky_tests.slow(result.tests).items():
            print(f"slow: {test}: {why}")
    if found := [test for result in results.values() for test in result.flaky]:
        entries, seen = flaky_tests.load(), f"{datetime.now(UTC):%Y-%m-%d} {commit()}"
        for test in found:
            entries = flaky_tests.record(entries, test, seen)
            print(f"flaky: {test}")
        flaky_tests.save(entries)
        print("They are in tests/flaky.toml now: commit that, and find their causes.")
    return 1 if any(result.failed for result in results.values()) else 0


def commit() -> str:
    """Short, with a mark where files differ from it; empty without git."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def seed(commit: str) -> str:
    """Return what random cases follow from (FERMI_TEST_SEED): the same for the same commit."""
    return str(int(hashlib.sha256(commit.encode()).hexdigest(), 16) % 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
