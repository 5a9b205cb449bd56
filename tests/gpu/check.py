"""What a check is. A module of `checks/` declares its checks with `@check`, in the order in which they run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.gpu.context import Context

AREAS = {
    "devices": "Discovery and NVML",
    "first_step": "First step and fork server",
    "collectives": "NCCL, gloo and flight recorder",
    "failures": "Failures",
    "training": "Training, memory and speed",
    "pulse": "Pulse and telemetry",
    "libraries": "Accelerate, Lightning, Trainer",
    "several": "Several cards",
}
"""Modules of `checks/`, in order of worth."""


class SkippedError(Exception):
    """A check cannot be made on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """`limit`: seconds after which it is ended and counts as failed; also what the planning of `--minutes` expects at
    most. `needs`: see `machine.Machine.lacks`. `alone`: it measures time, so nothing runs beside it. `proves`: rows of
    docs/requirements.md (`003-22`) that it shows."""

    name: str
    area: str
    title: str
    run: Callable[[Context], None]
    limit: int
    needs: tuple[str, ...] = ()
    alone: bool = False
    proves: tuple[str, ...] = ()


_CHECKS: dict[str, Check] = {}


def check(
    title: str, *, limit: int, needs: Sequence[str] = (), alone: bool = False, proves: Sequence[str] = ()
) -> Callable[[Callable[[Context], None]], Callable[[Context], None]]:
    """Declares a function as a check; its name is the function's with hyphens. Raises ValueError for a second check of
    the same name."""

    def declare(run: Callable[[Context], None]) -> Callable[[Context], None]:
        name = run.__name__.replace("_", "-")
        if name in _CHECKS:
            raise ValueError(f"two checks are called {name}")
        area = run.__module__.rpartition(".")[2]
        _CHECKS[name] = Check(name, area, title, run, limit, tuple(needs), alone, tuple(proves))
        return run

    return declare


def checks() -> dict[str, Check]:
    """Returns all checks by name, in the order in which they run: those that measure time at
    the end, so that the others need not wait for each of them."""
    for area in AREAS:
        importlib.import_module(f"tests.gpu.checks.{area}")
    order = list(AREAS)
    return dict(sorted(_CHECKS.items(), key=lambda item: (item[1].alone, order.index(item[1].area))))
