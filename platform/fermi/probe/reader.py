"""The values of a page, as a runner reads them. Standard library only, Python 3.9 or later."""

from __future__ import annotations

from typing import Any, NamedTuple


class PageValues(NamedTuple):
    """Values of a page (see `shared_page`). `trainer`, `compiler`, `error`, `place`, `collective` and `trace` are what
    the rank wrote, not validated."""

    pid: int
    step: int
    phase: str
    begun: int
    ended: int
    gpu_bytes: int
    evaluations: int
    answers: int
    watches: int
    compiles: int
    recompiled: int
    recompiled_at: int
    world_size: int
    cpu_build: int
    most_steps: int
    joined_as: int
    began: float
    stepped_at: float
    phase_at: float
    collective_at: float
    waited: float
    stepping: float
    alive_at: float
    asked_at: float
    answered_at: float
    compiling: float
    trainer: dict[str, Any]
    compiler: dict[str, Any]
    place: dict[str, Any]
    collective: dict[str, Any]
    error: dict[str, Any]
    trace: dict[str, Any]
