"""Run all tests (`make test`): Python on SQLite, Python on PostgreSQL + Redis, the console, the console in a browser.

System packages that a part needs are installed on Debian as root; elsewhere a part whose program is missing is left
out, and the summary says so. Where few tests of a part failed, they are run again alone; the summary names them all the
same. Durations of all tests are in build/tests, one JUnit file per part; flaky tests, in tests/flaky.toml
(`flaky_tests.py`).
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
PYTEST_WITH_REPORT = [
    sys.executable,
    "-m",
    "pytest",
    "--junitxml={junit}",
    "-o",
    "junit_family=xunit1",
]  # it names files
PYTEST = [*PYTEST_WITH_REPORT, "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
"""Half of the time tests wait for a process to start or a grace to pass, so four keep two cores busy. Whole files,
because what a file sets up is dear, in the order of tests/conftest.py."""

RETRY_COMMAND = [*PYTEST_WITH_REPORT, "--last-failed", "--last-failed-no-failures", "none"]
MAX_RETRIES = 5
"""Tests of a part that may fail in company and pass alone (docs/decisions/0015): more are no accident."""
MAX_SLOWEST = 20


def has_postgres() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or bool(shutil.which("initdb"))


def has_redis() -> bool:
    return bool(shutil.which("redis-server") or shutil.which("valkey-server"))


def has_program(program: str) -> Callable[[], bool]:
    return lambda: bool(shutil.which(program))


def has_jwt_plugin() -> bool:
    return any(Path("/usr/lib").glob("*/slurm*/auth_jwt.so"))


NEEDS: dict[str, Callable[[], bool]] = {
    "postgresql": has_postgres,
    "redis-server": has_redis,
    "chromium": has_program("chromium"),
    "slurm-wlm": has_program("slurmctld"),
    "slurmrestd": has_program("slurmrestd"),
    "slurm-wlm-jwt-plugin": has_jwt_plugin,
    "munge": has_program("munged"),
    "shellcheck": has_program("shellcheck"),
    "iproute2": lambda: bool(shutil.which("ip") and shutil.which("tc")),
    "iptables": has_program("iptables"),
    "openssh-client": has_program("ssh"),
    "rsync": has_program("rsync"),
    "podman": has_program("podman"),
    "runc": has_program("runc"),
}


@dataclass
class SuitePart:
    """A part of the suite. `{junit}` in its command or a variable is replaced by the path of JUnit's XML."""

    name: str
    command: list[str]
    cwd: Path = ROOT
    env: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    again: Callable[[Collection[str]], list[str]] | None = None
    """The command that runs the tests of these names, which failed, once more, one at a time."""


@dataclass
class PartResult:
    said: str
    seconds: float = 0.0
    failed: bool = False
    tests: list[flaky_tests.CaseOutcome] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)


DATABASE_FOLDERS = ("api", "apps", "e2e", "faults", "openapi")
"""Where tests touch the database. Of those marked `database` a run takes each file on SQLite or on PostgreSQL
(`shares.is_for_other_database`). With ALL=1 all run on SQLite, and on PostgreSQL all but those that start a platform
and are not marked."""

IGNORED_ON_SQLITE = "--ignore=tests/openapi/test_every_operation.py"
"""Of two databases PostgreSQL refuses more of what requests hold, and they are many; `make check-api` asks both."""

RUNS_ALL = bool(os.environ.get("FERMI_TEST_ALL"))
DATABASE_MARKERS = "database or not (e2e or faults)" if RUNS_ALL else "database"
DATABASE_ARGUMENTS = ["-m", DATABASE_MARKERS, *(f"tests/{name}" for name in DATABASE_FOLDERS)]
CONSOLE = ["npm", "test", "--silent", "--", "--reporter=default", "--reporter=junit", "--outputFile.junit={junit}"]
BROWSER = ["node", "--test", "--test-concurrency=2"]
BROWSER_TESTS = ROOT / "frontend" / "e2e"


def list_retry_files(failed: Collection[str]) -> list[str]:
    """Return the files to run again, whole and one after the other: a browser test continues where the one before it
    ended. All files that have a test of a name are run; every file, where none has it: the test is in a module that
    they share."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(BROWSER_TESTS.glob("*.test.js"))}
    found = {name: [file for file, text in texts.items() if f'"{name}"' in text] for name in failed}
    files = {file for holds in found.values() for file in (holds or texts)}
    return ["node", "--test", "--test-concurrency=1", *(str(file) for file in sorted(files))]


REPORTERS = {"spec": "stdout", "junit": "{junit}"}
REPORTER_OPTIONS = " ".join(
    f"--test-reporter={name} --test-reporter-destination={to}" for name, to in REPORTERS.items()
)

PARTS = [
    SuitePart("Python, SQLite", [*PYTEST, IGNORED_ON_SQLITE], again=lambda _: RETRY_COMMAND),
    SuitePart(
        "Python, PostgreSQL + Redis",
        [*PYTEST, *DATABASE_ARGUMENTS],
        again=lambda _: [*RETRY_COMMAND, *DATABASE_ARGUMENTS],
        env={"FERMI_TEST_DB": "postgres"},
        needs=("postgresql", "redis-server"),
    ),
    SuitePart("console", CONSOLE, ROOT / "frontend"),
    SuitePart(
        "console in a browser",
        BROWSER,
        ROOT / "frontend",
        needs=("chromium",),
        env={"NODE_OPTIONS": REPORTER_OPTIONS, "FERMI_TEST_DATA": str(REPORTS)},
        again=list_retry_files,
    ),
]


def install_missing(needs: Mapping[str, Callable[[], bool]]) -> None:
    """Install Debian packages as root. Never fails: the part that needs a missing one reports it."""
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


def run_part(part: SuitePart) -> PartResult:
    if missing := [package for package in part.needs if not NEEDS[package]()]:
        return PartResult(f"left out: {', '.join(missing)} not installed")
    began = time.monotonic()
    code, tests = run_tests(part, part.command)
    failed, failed_again, note = [test.name for test in tests if test.failed], None, ""
    if code == 1 and part.again and 0 < len(failed) <= MAX_RETRIES:
        code, again = run_tests(part, part.again(failed), "what failed, again and alone")
        failed_again = {test.name for test in again if test.failed} if again else None
        note = f"; failed at first{'' if code else ' and passed again'}: {', '.join(failed)}"
    seconds = time.monotonic() - began
    said = f"{'passed' if code == 0 else f'FAILED (code {code})'} in {seconds:.0f} s{note}"
    return PartResult(said, seconds, code != 0, tests, flaky_tests.find_flaky(tests, failed_again))


def run_tests(part: SuitePart, command: list[str], turn: str = "") -> tuple[int, list[flaky_tests.CaseOutcome]]:
    """Return the exit code, and the outcome of each test."""
    print(f"\n=== {part.name}{turn and f': {turn}'} ===", flush=True)
    words = re.findall(r"\w+", part.name) + ["again"] * bool(turn)
    junit = REPORTS / f"{'-'.join(words).lower()}.xml"
    junit.unlink(missing_ok=True)
    env = {name: value.replace("{junit}", str(junit)) for name, value in part.env.items()}
    asked = [word.replace("{junit}", str(junit)) for word in command]
    code = subprocess.run(asked, cwd=part.cwd, env={**os.environ, **env}, check=False).returncode
    return code, flaky_tests.read_junit(junit)


def list_slowest(tests: Iterable[tuple[str, flaky_tests.CaseOutcome]]) -> list[str]:
    """Return a line for each of the slowest tests, with its part."""
    found = sorted(tests, key=lambda each: -each[1].seconds)[:MAX_SLOWEST]
    return [f"{test.seconds:6.1f} s  {test.name}  ({part})" for part, test in found]


def list_browser_files() -> list[str]:
    files = sorted(BROWSER_TESTS.glob("*.test.js"))
    out = shares.list_left_out(files, shares.get_current_share())
    return [str(path) for path in files if path not in out]


def main() -> int:
    install_missing(NEEDS)
    if share := shares.choose_share(os.environ, read_commit()):
        os.environ[shares.SHARE_VARIABLE] = share
        print(f"of the long tests, share {share} of {shares.SHARE_COUNT} (FERMI_TEST_SHARE; ALL=1: all)", flush=True)
    seeded = os.environ.setdefault("FERMI_TEST_SEED", derive_seed(read_commit()))
    print(f"of long rows of cases, those of FERMI_TEST_SEED={seeded} (ALL=1: all)", flush=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would each compile the platform anew
    PARTS[-1].command += list_browser_files()
    REPORTS.mkdir(parents=True, exist_ok=True)
    results = {part.name: run_part(part) for part in PARTS}
    print(f"\n=== the {MAX_SLOWEST} slowest tests ===")
    print(*list_slowest((name, test) for name, result in results.items() for test in result.tests), sep="\n")
    print("\n=== make test ===")
    for name, result in results.items():
        print(f"{name:<28} {result.said}")
    for result in results.values():
        for test, why in flaky_tests.find_slow(result.tests).items():
            print(f"slow: {test}: {why}")
    if found := [test for result in results.values() for test in result.flaky]:
        entries, seen = flaky_tests.load_record(), f"{datetime.now(UTC):%Y-%m-%d} {read_commit()}"
        for test in found:
            entries = flaky_tests.add_to_record(entries, test, seen)
            print(f"flaky: {test}")
        flaky_tests.save_record(entries)
        print("They are in tests/flaky.toml now: commit that, and find their causes.")
    return 1 if any(result.failed for result in results.values()) else 0


def read_commit() -> str:
    """Return the short commit, with a mark where files differ from it; an empty string without git."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def derive_seed(commit: str) -> str:
    """Return the seed of random cases (FERMI_TEST_SEED): the same for the same commit."""
    return str(int(hashlib.sha256(commit.encode()).hexdigest(), 16) % 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
