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

FILE_CHANGED = 3
"""The exit code if a file is no longer what it was when it was hashed."""


def upload_snapshot(folder: str, limits: dict[str, int], wanted: BinaryIO, output: BinaryIO) -> int:
    """Write manifest, patch and the wanted files, and return the exit code."""
    top = Path(folder)
    try:
        found = tree.list_files(top)
        tree.check_limits(limits, found)
        files = [*tree.hash_files(top, found)]
        manifest = code.serialize_manifest(files)
        code.parse_manifest(manifest)
    except code.ManifestError as error:
        return _write_refusal(output, error.code, error.params)
    except OSError as error:
        params = {"path": str(error.filename or folder), "why": error.strerror or str(error)}
        return _write_refusal(output, "SNAPSHOT_NOT_READABLE", params)
    origin, patch = tree.read_origin(top)
    said = patch.encode()
    _write_line(output, {"ok": True, "manifest": len(manifest), "patch": len(said), "origin": origin})
    output.write(manifest + said)
    output.flush()
    places = {one.path: one.where for one in found}
    known = {one.sha256: (one.size, places[one.path]) for one in files if one.sha256}
    for line in wanted.read().split():
        sha256 = line.decode("ascii")
        size, path = known[sha256]
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                if os.fstat(file.fileno()).st_size != size:
                    return FILE_CHANGED
                output.write(f"{sha256} {size}\n".encode())
                shutil.copyfileobj(file, output, tree.MIB)
        except OSError:
            return FILE_CHANGED
    output.flush()
    return 0


def _write_line(out: BinaryIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message).encode() + b"\n")


def _write_refusal(out: BinaryIO, problem: str, params: dict[str, Any]) -> int:
    _write_line(out, {"ok": False, "code": problem, "params": params})
    out.flush()
    return 0


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    folder, limits = arguments
    return upload_snapshot(folder, json.loads(limits), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
