"""Format all source files and fix what the linters can fix (`make fix`)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUFF = Path(sys.executable).parent / "ruff"


def main() -> int:
    """Run all formatters, whichever fail; return 1 if one did. ruff prints what it cannot fix."""
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
