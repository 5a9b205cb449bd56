"""Run all static checks (`make check`). Each of them runs, whichever fail."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

CHECKS: dict[str, tuple[list[str | Path], Path]] = {
    "format": ([BIN / "ruff", "format", "--check", "."], ROOT),
    "lint": ([BIN / "ruff", "check", "."], ROOT),
    "types": ([BIN / "mypy"], ROOT),
    "imports": ([BIN / "lint-imports"], ROOT),
    "migrations": ([sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"], ROOT),
    "API schema": ([sys.executable, "scripts/schema.py", "--check"], ROOT),
    "client types": ([sys.executable, "scripts/generate_client.py", "--check"], ROOT),
    "locks": ([sys.executable, "scripts/lock.py", "--check"], ROOT),
    "translations": ([sys.executable, "scripts/translations.py"], ROOT),
    "flaky tests": ([sys.executable, "scripts/flaky_tests.py"], ROOT),
    "commits": ([sys.executable, "scripts/commit_subjects.py"], ROOT),
    "front end": (["npm", "run", "--silent", "check"], ROOT / "frontend"),
}


def run_check(name: str) -> tuple[str, int, float, str]:
    """Return the check's name, exit code, duration in seconds, and output."""
    command, cwd = CHECKS[name]
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    env = {**os.environ, "PYTHONPATH": path, "FERMI_SECRET_KEY": "for checks only"}
    began = time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=env, check=False, text=True, capture_output=True)
    return name, done.returncode, time.monotonic() - began, done.stdout + done.stderr


def main() -> int:
    failed = []
    slowest_first = sorted(CHECKS, key=["front end", "API schema"].__contains__, reverse=True)
    with ThreadPoolExecutor(2) as pool:
        for running in as_completed([pool.submit(run_check, name) for name in slowest_first]):
            name, code, seconds, said = running.result()
            print(f"{name:<12} {'failed' if code else 'ok':<7} {seconds:5.1f} s", flush=True)
            if code:
                failed.append(name)
                print(said, flush=True)
    if failed:
        print(f"make check: {len(failed)} of {len(CHECKS)} failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
