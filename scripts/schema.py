"""Writes everything that is generated from the API's code anew (`make schema`); with --check only compares.

docs/openapi.json                 from the views and serializers; a warning of the generator is an error
frontend/src/api/schema.d.ts      from docs/openapi.json
"""

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "openapi.json"


def document(path: Path) -> None:
    command = [sys.executable, "manage.py", "spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json"]
    subprocess.run([*command, "--file", str(path)], cwd=ROOT, check=True)


def drift() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "openapi.json"
        document(fresh)
        old = DOCUMENT.read_text().splitlines() if DOCUMENT.exists() else []
        changes = list(
            difflib.unified_diff(old, fresh.read_text().splitlines(), "docs/openapi.json", "the code", "", "", 2)
        )
    print("\n".join(changes[:60]))
    if changes:
        print("docs/openapi.json is not what the code says: run `make schema` and commit the result.")
    return 1 if changes else 0


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return drift()
    document(DOCUMENT)
    subprocess.run([sys.executable, "scripts/generate_client.py"], cwd=ROOT, check=True)
    subprocess.run(["npm", "run", "--silent", "types"], cwd=ROOT / "frontend", check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
