"""Run `nvidia-smi` and parse its answers. Standard library only, Python 3.9 or later.

Callers that may wait use `run_query`; those that have ranks to supervise run `build_command` in the background
(`slow_command.py`) and parse with `parse_rows`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

TIMEOUT_SECONDS = 10.0
SLOWDOWN_REASONS = {"heat": 0x20 | 0x40, "power": 0x04 | 0x80, "hardware": 0x08, "other": 0x10 | 0x100 | 0x200 | 0x400}
"""Reasons why a GPU is slower than it could be, and the bits of `nvmlClocksEventReasons*` (nvml.h) for them. That it
idles, or has a fixed clock, is no reason."""
SmiRow = dict[str, str]
"""Values by field. What a GPU does not report (`[N/A]`, `[Not Supported]`, `[Insufficient Permissions]`) is left out.
"""


def build_command(fields: Sequence[str], target: str = "gpu") -> list[str]:
    """Return the command that queries these fields of GPUs, or of another `target` such as compute-apps."""
    return ["nvidia-smi", f"--query-{target}={','.join(fields)}", "--format=csv,noheader,nounits"]


def run_query(fields: Sequence[str], target: str = "gpu", seconds: float = TIMEOUT_SECONDS) -> list[SmiRow] | None:
    """Return the rows of a query; None where there is no such tool, where it fails, and where it does not answer within
    `seconds`."""
    try:
        done = subprocess.run(
            build_command(fields, target),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_rows(done.stdout, fields)


def parse_rows(text: str, fields: Sequence[str]) -> list[SmiRow]:
    """Return the rows of the tool's output. The last field may have commas of its own. Malformed lines are skipped."""
    rows = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        if len(values) == len(fields) and all(values):
            told = zip(fields, values)  # noqa: B905 (strict is newer than 3.9)
            rows.append({field: value for field, value in told if not value.startswith("[") and value != "N/A"})
    return rows


def get_number(row: SmiRow, field: str) -> float | None:
    """Return a field as a number; None where it is none."""
    try:
        return float(row[field])
    except (KeyError, ValueError):
        return None


def get_int(row: SmiRow, field: str) -> int | None:
    """Return a field as an integer; None where it is none."""
    value = row.get(field, "")
    return int(value) if value.isdecimal() else None


def list_slowdown_reasons(mask: str | int | None) -> list[str]:
    """Return the names of `SLOWDOWN_REASONS` that apply, in its order. `mask`: as a number, or as the tool prints
    one."""
    try:
        bits = mask if isinstance(mask, int) else int(mask or "", 16)
    except ValueError:
        return []
    return [name for name, some in SLOWDOWN_REASONS.items() if bits & some]


def list_visible_gpus(visible: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the indices of the GPUs that CUDA_VISIBLE_DEVICES names (numbers, or prefixes of UUIDs), in its order. As
    CUDA reads it, the list ends before the first that does not exist."""
    if visible is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for word in filter(None, (word.strip() for word in visible.split(","))):
        index = int(word) if word.isdigit() else next((n for n, uuid in enumerate(uuids) if uuid.startswith(word)), -1)
        if not 0 <= index < len(uuids) or index in found:
            break
        found.append(index)
    return found
