"""Result of checking an engine, one point at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class CheckLevel(StrEnum):
    """Level of a result. WARN = training works, but less well or not for all users; FAIL = it does not."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check. `code` has texts in `fermi.messages`, filled from `params`. `remedy`: text to apply or run
    as it is."""

    level: CheckLevel
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""
