"""The release before this one, from which installations are upgraded: `released.json` has its commit and its newest
migrations. `python -m tests.previous_release` writes the present ones there, when a release is made."""

import json
import subprocess
from pathlib import Path

from tests.platform_process import ROOT

WRITTEN = Path(__file__).with_name("released.json")


def commit() -> str:
    return json.loads(WRITTEN.read_text())["commit"]


def migrations() -> list[tuple[str, str]]:
    """(app, migration): the last one of each app of ours."""
    return list(json.loads(WRITTEN.read_text())["migrations"].items())


def tree(folder: Path, revision: str = "") -> bool:
    """Put the files of the release (or of another revision) into `folder`. Return False where this checkout's history
    does not reach there."""
    asked = ["git", "-C", str(ROOT), "archive", "--format=tar", revision or commit()]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packed:
        folder.mkdir()
        unpacked = subprocess.run(["tar", "-x", "-C", str(folder)], stdin=packed.stdout, check=False)
    return packed.returncode == 0 and unpacked.returncode == 0


def write() -> None:
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    newest = {
        folder.parent.name: max(path.stem for path in folder.glob("0*.py"))
        for folder in sorted((ROOT / "apps").glob("*/migrations"))
        if any(folder.glob("0*.py"))
    }
    WRITTEN.write_text(json.dumps({"commit": head.stdout.strip(), "migrations": newest}, indent=1) + "\n")


if __name__ == "__main__":
    write()
