"""Sends a folder of an environment to the platform as a snapshot of code: started by the environment daemon, as the
environment's own process. Standard library only, Python 3.9 or later.

    python -m fermi.runner.snapshot_upload FOLDER '{"files": 50000, "fileMb": 100, "totalMb": 512}'

    ──▶ a line of JSON       {"ok": true, "manifest": 1234, "patch": 0, "origin": {…}}, and so many bytes of both
                             or {"ok": false, "code": "…", "params": {…}}
    ◀── lines                the SHA-256 of the wanted files, to the end of the input
    ──▶ for each             a line `<sha256> <size>`, and its bytes
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, BinaryIO

from fermi.runner import code, tree

CHANGED = 3
"""The exit code if a file is no longer what it was when it was hashed."""


def gather(folder: str, limits: dict[str, int], wanted: BinaryIO, out: BinaryIO) -> int:
    """Write manifest, patch and the wanted files, and return the exit code."""
    top = Path(folder)
    try:
        found = tree.walk(top)
        tree.within(limits, found)
        files = [*tree.hashed(top, found)]
        manifest = code.dump(files)
        code.load(manifest)
    except code.Wrong as error:
        return _no(out, error.code, error.params)
    except OSError as error:
        params = {"path": str(error.filename or folder), "why": error.strerror or str(error)}
        return _no(out, "SNAPSHOT_NOT_READABLE", params)
    origin, patch = tree.origin(top)
    said = patch.encode()
    _tell(out, {"ok": True, "manifest": len(manifest), "patch": len(said), "origin": origin})
    out.write(manifest + said)
    out.flush()
    places = {one.path: one.where for one in found}
    known = {one.sha256: (one.size, places[one.path]) for one in files if one.sha256}
    for line in wanted.read().split():
        sha256 = line.decode("ascii")
        size, path = known[sha256]
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                if os.fstat(file.fileno()).st_size != size:
                    return CHANGED
                out.write(f"{sha256} {size}\n".encode())
                shutil.copyfileobj(file, out, tree.MB)
        except OSError:
            return CHANGED
    out.flush()
    return 0


def _tell(out: BinaryIO, said: dict[str, Any]) -> None:
    out.write(json.dumps(said).encode() + b"\n")


def _no(out: BinaryIO, problem: str, params: dict[str, Any]) -> int:
    _tell(out, {"ok": False, "code": problem, "params": params})
    out.flush()
    return 0


def main(words: list[str]) -> int:
    """Run the command line and return the exit code."""
    folder, limits = words
    return gather(folder, json.loads(limits), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
