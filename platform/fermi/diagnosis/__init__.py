"""From facts to findings: what is wrong with a task, where, why, and what to do next. Pure, and the same for every
engine.

A `Finding` is what people read, in the console, from `fermi why` and from the API. What an attempt's runners and the
platform find while it runs is stored (`apps.training.models.Finding`); the rest follows from what is stored anyway.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fermi.schema import sanitize


class Level(StrEnum):
    """INFO: nothing is wrong; WARN: the task continues, but not well; FAIL: it does not continue, or it ended badly."""

    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Where:
    """A rank, a node, or both; empty: the whole task."""

    rank: int | None = None
    node_rank: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Printed or observed lines, such as log lines or a stack, under a sentence: `code` and `params`, with texts in
    `fermi.messages`."""

    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lines: Sequence[str] = ()
    where: Where = Where()


@dataclass(frozen=True, slots=True)
class Action:
    """Something that the reader may do next. `code` is one of `actions.ACTIONS`, with texts `ACTION_<CODE>`; `params`
    fill the text and are the action's parameters."""

    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `code` has texts in `fermi.messages`, filled from `params`: the message says what, the
    hint what to do. `since`: unix seconds; None: unknown. `key`: distinguishes two findings with one code within an
    attempt."""

    code: str
    level: Level
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    where: Sequence[Where] = ()
    since: float | None = None
    evidence: Sequence[Evidence] = ()
    actions: Sequence[Action] = ()
    key: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", sanitize.sanitize_params(dict(self.params)))

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = sanitize.sanitize_params(dataclasses.asdict(self))
        return found
