"""Late values: what only the engine knows, at the time and place where a job runs. Standard library only, Python 3.9 or
later: launch writes them down, and what reads them again is shipped to pods, Slurm nodes and workers.

    (Late.FILES_DIR, "/a.json") ──resolve──▶ "/run/files/a.json"           by who knows all of them
                                ──encode───▶ [{"late": "files directory"}, "/a.json"] ──decode──▶ "/run/files/a.json"

`SHOWN` instead of what is known: for people, before there is a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Late(Enum):
    HEAD_HOST = "head host"  # where rank 0 runs, as the other nodes reach it
    FILES_DIR = "files directory"  # where the plan's files lie on the node
    PYTHON = "python"  # the interpreter that has the training stack


SHOWN = {late: f"<{late.value}>" for late in Late}


def resolve(value: str | Late | tuple[str | Late, ...], known: Mapping[Late, str]) -> str:
    """Raises KeyError when an engine forgot to bind a late value."""
    return "".join(known[piece] if isinstance(piece, Late) else piece for piece in _pieces(value))


def is_open(value: str | Late | tuple[str | Late, ...], known: Mapping[Late, str]) -> bool:
    return any(isinstance(piece, Late) and piece not in known for piece in _pieces(value))


def encode(value: str | Late | tuple[str | Late, ...], known: Mapping[Late, str]) -> str | list[str | dict[str, str]]:
    """For JSON: text where all is known, else the pieces, of which some stay open."""
    if not is_open(value, known):
        return resolve(value, known)
    return [
        {"late": piece.value} if isinstance(piece, Late) and piece not in known else resolve(piece, known)
        for piece in _pieces(value)
    ]


def decode(written: str | list[str | dict[str, str]], known: Mapping[Late, str]) -> str:
    """Of what `encode` has made. Raises KeyError when an engine forgot to bind a late value."""
    if isinstance(written, str):
        return written
    return "".join(known[Late(piece["late"])] if isinstance(piece, dict) else piece for piece in written)


def _pieces(value: str | Late | tuple[str | Late, ...]) -> tuple[str | Late, ...]:
    return value if isinstance(value, tuple) else (value,)
