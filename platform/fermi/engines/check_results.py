"""What a look at an engine found, one point at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """WARN = training works, but less well or not for everybody; FAIL = it does not."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` has texts in `fermi.messages`, filled from `params`. `remedy`: what to apply or run, as it stands."""

    level: Level
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""
