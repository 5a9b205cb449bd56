"""Queries what one interpreter of an environment has installed. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fermi.inside import installed, protocol

TIMEOUT_SECONDS = 20.0
MAX_ANSWER_BYTES = 2 << 20


def describe_packages(python: str, imports: Sequence[str]) -> dict[str, Any]:
    """Return the report of `fermi.inside.installed`, run by that interpreter. Raises InsideRefusedError if it cannot be
    run, does not answer within TIMEOUT_SECONDS, or prints something else."""
    program = Path(installed.__file__).read_text(encoding="utf-8")
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        try:
            process = subprocess.Popen(
                [python, "-c", program],
                stdin=subprocess.PIPE, stdout=said, stderr=complained, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise protocol.InsideRefusedError(
                "INSIDE_PYTHON_UNUSABLE", python=python, why=error.strerror or str(error)
            ) from error
        try:
            process.communicate(json.dumps({"imports": list(imports)}).encode(), timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise protocol.InsideRefusedError(
                "INSIDE_PYTHON_SLOW", python=python, seconds=round(TIMEOUT_SECONDS)
            ) from error
        text, why = _read_end(said), _read_end(complained).decode(errors="replace").strip()[-500:]
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text.rstrip().rpartition(b"\n")[2])
        if process.returncode == 0 and isinstance(found, dict):
            return {"python": python, **found}
    raise protocol.InsideRefusedError(
        "INSIDE_PYTHON_UNUSABLE", python=python, why=why or f"exit code {process.returncode}"
    )


def _read_end(file: Any) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MAX_ANSWER_BYTES))
    return bytes(file.read())
