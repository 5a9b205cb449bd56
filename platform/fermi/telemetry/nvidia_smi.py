"""`nvidia-smi`: what it is asked, and how its answers are read. Standard library only, Python 3.9 or later.

Who may wait asks by `ask`; who has ranks to look after asks with `command` beside (`beside.py`) and reads by `parse`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

PATIENCE_SECONDS = 10.0
REASONS = {"heat": 0x20 | 0x40, "power": 0x04 | 0x80, "hardware": 0x08, "other": 0x10 | 0x100 | 0x200 | 0x400}
"""Why a GPU is slower than it could be, and the bits of `nvmlClocksEventReasons*` (nvml.h) that say so. That it idles,
or is set to a clock, slows nobody."""
Row = dict[str, str]
"""By field. What a GPU does not tell (`[N/A]`, `[Not Supported]`, `[Insufficient Permissions]`) is left out."""


def command(fields: Sequence[str], of: str = "gpu") -> list[str]:
    return ["nvidia-smi", f"--query-{of}={','.join(fields)}", "--format=csv,noheader,nounits"]


def ask(fields: Sequence[str], of: str = "gpu", seconds: float = PATIENCE_SECONDS) -> list[Row] | None:
    """None where there is no such tool, where it fails, and where it does not answer in time."""
    try:
        done = subprocess.run(
            command(fields, of), capture_output=True, encoding="utf-8", errors="replace", timeout=seconds, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse(done.stdout, fields)


def parse(text: str, fields: Sequence[str]) -> list[Row]:
    """The last field may have commas of its own. Lines that are no answer are passed over."""
    rows = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        if len(values) == len(fields) and all(values):
            told = zip(fields, values)  # noqa: B905 (strict is newer than 3.9)
            rows.append({field: value for field, value in told if not value.startswith("[") and value != "N/A"})
    return rows


def number(row: Row, field: str) -> float | None:
    try:
        return float(row[field])
    except (KeyError, ValueError):
        return None


def whole(row: Row, field: str) -> int | None:
    value = row.get(field, "")
    return int(value) if value.isdecimal() else None


def reasons(mask: str | int | None) -> list[str]:
    """Names of `REASONS`, the first of them first. `mask`: as a number, or as the tool prints one."""
    try:
        bits = mask if isinstance(mask, int) else int(mask or "", 16)
    except ValueError:
        return []
    return [name for name, some in REASONS.items() if bits & some]


def places(visible: str | None, uuids: Sequence[str]) -> list[int]:
    """Which of all GPUs those are that CUDA_VISIBLE_DEVICES names (numbers, or beginnings of UUIDs), in its order. As
    CUDA reads it, the list ends before the first that is not there."""
    if visible is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for word in filter(None, (word.strip() for word in visible.split(","))):
        index = int(word) if word.isdigit() else next((n for n, uuid in enumerate(uuids) if uuid.startswith(word)), -1)
        if not 0 <= index < len(uuids) or index in found:
            break
        found.append(index)
    return found
