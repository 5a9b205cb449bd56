"""Results of a pre-flight test: one thing that was checked, and nodes that are at fault."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PASS, WARN, FAIL, UNKNOWN = "pass", "warn", "fail", "unknown"
LEVEL_ORDER = (PASS, WARN, FAIL)


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """The result of one check. `code` has texts in `fermi.messages` (as `PREFLIGHT_<code>`), filled from `params`;
    `value`: what was observed."""

    check: str
    level: str
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "code": f"PREFLIGHT_{self.code}"}


@dataclass(frozen=True, slots=True)
class Culprit:
    """What is at fault. `ranks`: the nodes; empty = none in particular."""

    ranks: tuple[int, ...]
    level: str
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)


def find_worst(levels: Iterable[str]) -> str:
    """Return the worst level; `unknown` only where there is no other."""
    known = [level for level in levels if level in LEVEL_ORDER]
    return max(known, key=LEVEL_ORDER.index) if known else UNKNOWN
