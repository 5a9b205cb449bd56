"""Late values: what only the engine knows, when and where a job runs. Standard library only, Python 3.9 or later: plans
contain them, and the code that resolves them runs in pods, on Slurm nodes and on workers.

    (Late.FILES_DIR, "/a.json") ──resolve──▶ "/run/files/a.json"              if all are known
                                ──encode_value───▶ [{"late": "files directory"}, "/a.json"]
                                                   ──decode_value──▶ "/run/files/a.json"

`LATE_TEXTS` in place of the known values: for display, before there is a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Late(Enum):
    """A late value. The strings are stored in specs."""

    HEAD_HOST = "head host"  # where rank 0 runs, as the other nodes reach it
    FILES_DIR = "files directory"  # where the plan's files lie on the node
    PYTHON = "python"  # the interpreter that has the training stack


LATE_TEXTS = {late: f"<{late.value}>" for late in Late}


def resolve(value: str | Late | tuple[str | Late, ...], values: Mapping[Late, str]) -> str:
    """Return the value as text. Raises KeyError if an engine did not bind one of its late values."""
    return "".join(values[piece] if isinstance(piece, Late) else piece for piece in _split_pieces(value))


def has_unknown_values(value: str | Late | tuple[str | Late, ...], values: Mapping[Late, str]) -> bool:
    """Return True if the value has parts that are not known."""
    return any(isinstance(piece, Late) and piece not in values for piece in _split_pieces(value))


def encode_value(
    value: str | Late | tuple[str | Late, ...], values: Mapping[Late, str]
) -> str | list[str | dict[str, str]]:
    """Return the value for JSON: text if all is known, else its pieces, of which some stay late."""
    if not has_unknown_values(value, values):
        return resolve(value, values)
    return [
        {"late": piece.value} if isinstance(piece, Late) and piece not in values else resolve(piece, values)
        for piece in _split_pieces(value)
    ]


def decode_value(written: str | list[str | dict[str, str]], values: Mapping[Late, str]) -> str:
    """Return the text of what `encode_value` has made. Raises KeyError if an engine did not bind a late value."""
    if isinstance(written, str):
        return written
    return "".join(values[Late(piece["late"])] if isinstance(piece, dict) else piece for piece in written)


def _split_pieces(value: str | Late | tuple[str | Late, ...]) -> tuple[str | Late, ...]:
    return value if isinstance(value, tuple) else (value,)
