"""Keep a process standing by in an environment with the training stack imported (`fermi.inside.standby`), and parse
what it reports of itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fermi.engines.inside.render import YIELDS
from fermi.engines.inside.session import InsideError, Session

STANDING, IMPORTING, FAILED, OFF = STATES = ("standing", "importing", "failed", "off")
WHY = (
    "STANDBY_FAILED", "STANDBY_HAS_CUDA", "STANDBY_HAS_THREADS", "STANDBY_SOCKET", "STANDBY_WITHOUT_TORCH",
)  # fmt: skip
"""Codes of reasons why no process stands by."""
MAX_TEXT = 300
MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class Standby:
    """State of a process that stands by. `memory`: what it holds, in bytes; `error`: why there is none, as {"code": …,
    params…}."""

    state: str
    memory: int | None = None
    error: dict[str, Any] | None = field(default=None)


def keep(session: Session, modules: Iterable[str], seconds: float) -> Standby:
    """Keep a process with `modules` imported until nothing has requested it for `seconds`; 0: end it. Return its state.
    Raise InsideError."""
    return believed(session.ask("stand-by", modules=[*modules], seconds=seconds, yields=YIELDS))


def believed(said: Mapping[str, Any]) -> Standby:
    """Return what an environment reported, as far as it has the right shape. Raise InsideError where it has not."""
    state, memory = said.get("state"), said.get("memory")
    if state == "unusable":
        code, params = said.get("code"), said.get("params")
        plain = {
            str(name)[:40]: value if isinstance(value, int) else str(value)[:MAX_TEXT]
            for name, value in (params.items() if isinstance(params, dict) else ())
        }
        return Standby(FAILED, error={**plain, "code": code if code in WHY else "STANDBY_FAILED"})
    if state not in STATES:
        raise InsideError("INSIDE_SILENT", why="it did not say whether a process stands by")
    known = isinstance(memory, int) and not isinstance(memory, bool) and 0 < memory < MAX_BYTES
    return Standby(state, memory if known else None)
