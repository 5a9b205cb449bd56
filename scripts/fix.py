"""Puts every source into the form that `make check` wants, and mends what the linters can (`make fix`)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUFF = Path(sys.executable).parent / "ruff"


def main() -> int:
    """All are tried, whichever fail; what ruff cannot mend it names."""
    return max(
        [
            subprocess.run([RUFF, "check", "--fix", "--quiet", "."], cwd=ROOT, check=False).returncode,
            subprocess.run([RUFF, "format", "--quiet", "."], cwd=ROOT, check=False).returncode,
            subprocess.run(
                ["npm", "run", "--silent", "format", "--", "--log-level", "warn"], cwd=ROOT / "frontend", check=False
            ).returncode,
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
