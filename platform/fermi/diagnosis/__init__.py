"""Facts → findings: what is wrong with a task, where, why, and what to do next. Pure; alike for every engine.

A `Finding` is what people read, on the page, from `fermi why` and from the API. What an attempt's runners and the
platform find while it runs is stored (`apps.training.models.Finding`); the rest follows from what is stored anyway.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fermi.schema import sanitize


class Level(StrEnum):
    """INFO: nothing is wrong; WARN: it goes on, but not well; FAIL: it does not go on, or it ended badly."""

    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Where:
    """Of a rank, a node, or both; empty: of the whole task."""

    rank: int | None = None
    node_rank: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`code` and `params`: the sentence above it, with texts in `fermi.messages`; `lines`: as they were printed or
    found, such as log lines or a stack."""

    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lines: Sequence[str] = ()
    where: Where = Where()


@dataclass(frozen=True, slots=True)
class Action:
    """Something that its reader may do next. `code` is one of `actions.ACTIONS`, with texts `ACTION_<CODE>`; `params`
    fill the text and are what the action takes."""

    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` has texts in `fermi.messages`, filled from `params`: the message says what, the hint what to do. `since`:
    unix seconds; None: not known. `key`: tells two of one code apart within an attempt."""

    code: str
    level: Level
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    where: Sequence[Where] = ()
    since: float | None = None
    evidence: Sequence[Evidence] = ()
    actions: Sequence[Action] = ()
    key: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", sanitize.params(dict(self.params)))

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = sanitize.params(dataclasses.asdict(self))
        return found
