"""What JAX tells. A step is one call of a compiled function among others, and its collectives run inside: neither can
be seen."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rank import Pulse

_EVENTS = "/jax/core/compile/"
_LAST = "/backend_compile_duration"
"""Of the three events of a compilation: jax/_src/dispatch.py, jax 0.10."""


def compiles(pulse: Pulse, monitoring: ModuleType) -> None:
    depth, before = 0, 0

    def begins(event: str, _: object, **about: Any) -> None:
        nonlocal depth, before
        if event.startswith(_EVENTS) and pulse.on_main_thread():
            depth += 1
            if depth == 1:
                before = pulse.begins_to_compile()

    def ends(event: str, _: object, **about: Any) -> None:
        nonlocal depth
        if event.startswith(_EVENTS) and pulse.on_main_thread() and depth:
            depth -= 1
            if depth == 0:
                pulse.has_compiled(before, whole=event.endswith(_LAST))

    monitoring.register_scalar_listener(begins)
    monitoring.register_event_duration_secs_listener(ends)
