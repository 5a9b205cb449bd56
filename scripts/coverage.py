"""Measure which lines and branches of apps/ and platform/ the tests reach (`make coverage`); ONLY names some of the
tests.

Processes that tests start are measured too, if they inherit the tests' environment and may write into build/; a process
that is killed leaves no data. The report is printed; build/coverage/html shows each line.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COVERAGE = [sys.executable, "-m", "coverage"]
BUILD = ROOT / "build" / "coverage"


def main() -> int:
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    tests = [*("-m", "pytest", "-n", "2", "--dist", "loadfile"), *os.environ.get("ONLY", "tests").split()]
    code = subprocess.run([*COVERAGE, "run", *tests], cwd=ROOT, check=False).returncode
    subprocess.run([*COVERAGE, "combine", "--quiet"], cwd=ROOT, check=True)
    for torn in BUILD.glob("data.*"):  # of processes that were killed as they wrote
        torn.unlink()
    for report in (["report"], ["html", "--quiet"]):
        subprocess.run([*COVERAGE, *report], cwd=ROOT, check=True)
    print(f"line by line: {BUILD.relative_to(ROOT)}/html/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
