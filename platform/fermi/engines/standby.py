"""Keep a process standing by in an environment with the training stack imported (`fermi.inside.standby`), and parse
what it reports of itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fermi.engines.inside.render import YIELD_OPTIONS
from fermi.engines.inside.session import InsideError, InsideSession

STANDING, IMPORTING, FAILED, OFF = STATES = ("standing", "importing", "failed", "off")
FAILURE_CODES = (
    "STANDBY_FAILED", "STANDBY_HAS_CUDA", "STANDBY_HAS_THREADS", "STANDBY_SOCKET", "STANDBY_WITHOUT_TORCH",
)  # fmt: skip
"""Codes of reasons why no process stands by."""
MAX_TEXT_CHARS = 300
MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """State of a process that stands by. `memory`: what it holds, in bytes; `error`: why there is none, as {"code": …,
    params…}."""

    state: str
    memory: int | None = None
    error: dict[str, Any] | None = field(default=None)


def request_standby(session: InsideSession, modules: Iterable[str], seconds: float) -> StandbyStatus:
    """Keep a process with `modules` imported until nothing has requested it for `seconds`; 0: end it. Return its state.
    Raise InsideError."""
    return parse_standby(session.request("stand-by", modules=[*modules], seconds=seconds, yields=YIELD_OPTIONS))


def parse_standby(answer: Mapping[str, Any]) -> StandbyStatus:
    """Return what an environment reported, as far as it has the right shape. Raise InsideError where it has not."""
    state, memory = answer.get("state"), answer.get("memory")
    if state == "unusable":
        code, params = answer.get("code"), answer.get("params")
        plain = {
            str(name)[:40]: value if isinstance(value, int) else str(value)[:MAX_TEXT_CHARS]
            for name, value in (params.items() if isinstance(params, dict) else ())
        }
        return StandbyStatus(FAILED, error={**plain, "code": code if code in FAILURE_CODES else "STANDBY_FAILED"})
    if state not in STATES:
        raise InsideError("INSIDE_SILENT", why="it did not say whether a process stands by")
    known = isinstance(memory, int) and not isinstance(memory, bool) and 0 < memory < MAX_BYTES
    return StandbyStatus(state, memory if known else None)
