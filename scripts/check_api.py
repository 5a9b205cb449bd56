"""Test the API with more requests generated from its schema than `make test` sends (`make check-api SEED=7
EXAMPLES=300`): on SQLite, then on PostgreSQL where it is installed. Without a seed a random one is chosen and printed,
so that a run can be repeated."""

import os
import secrets
import subprocess
import sys

from scripts.test import ROOT, has_postgres, has_redis

COMMAND = [sys.executable, "-m", "pytest", "tests/openapi", "-q", "--timeout", "0", "-n", "2", "--dist", "load"]


def main() -> int:
    seed = os.environ.get("FERMI_API_SEED") or str(secrets.randbelow(1 << 31))
    examples = os.environ.get("FERMI_API_EXAMPLES") or "100"
    env = {**os.environ, "FERMI_API_SEED": seed, "FERMI_API_EXAMPLES": examples}
    codes = []
    for database in ("sqlite", "postgres") if has_postgres() and has_redis() else ("sqlite",):
        print(f"\n=== {database}: make check-api SEED={seed} EXAMPLES={examples} ===", flush=True)
        codes.append(subprocess.run(COMMAND, cwd=ROOT, env={**env, "FERMI_TEST_DB": database}, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
