"""Computes the step of a line of Hugging Face's Trainer. Its lines have an epoch and no step; a rank's probe reports at
which step and epoch the Trainer is, and every how many steps it logs. Pure.

Steps grow with epochs at one rate, so an epoch gives a step up to what printing has rounded: to two decimals (older
versions), to four digits (`f"{v:.4g}"` in trainer_callback.py, transformers 5.24), or not at all. Of the steps that the
epoch leaves, the next one at which the Trainer logs is meant.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from fermi.metrics.records import Record

DECIMALS, DIGITS = 2, 4
TRAINER_SOURCE = "transformers"


@dataclass(frozen=True, slots=True)
class TrainerPosition:
    """Position of a Trainer: at `step` of `total` (0: not known), at `epoch`. It logs `every` so many steps; 0: at
    other moments."""

    step: int
    total: int
    epoch: float
    every: int

    @classmethod
    def from_reports(cls, said: Iterable[Mapping[str, Any] | None]) -> Self | None:
        """Return the first position that ranks report in their `trainer`; None: no Trainer has made a step."""
        for one in said:
            if one and (step := one.get("step")) and (epoch := one.get("epoch")):
                return cls(step, one.get("total") or 0, epoch, one.get("every") or 0)
        return None

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> Self | None:
        """Return the position at the first record of what a Trainer has logged; None if there is none. A training of
        seconds may be over before a progress report is requested."""
        for one in records:
            if one.source == TRAINER_SOURCE and one.step and (epoch := one.values.get("epoch")):
                return cls(one.step, 0, epoch, 0)
        return None

    def step_of(self, epoch: float, before: int, *, trains: bool) -> int:
        """Return the step of a line with this epoch, after a line of step `before`. `trains`: it has a training loss,
        so it comes when a line is due; an evaluation's line may come right after such a line, at the same step."""
        rate = self.step / self.epoch
        exact = epoch * rate
        found, within = round(exact), _get_rounding_error(epoch) * rate + 0.5
        if not trains and abs(before - exact) <= within:
            found = before
        elif trains and self.every:
            within += abs(exact - self.step) / self.step  # an epoch's last step may take fewer batches than others
            due = ((before // self.every + 1) * self.every, round(exact / self.every) * self.every)
            found = next((step for step in due if step > before and abs(step - exact) <= within), found)
        return min(found, self.total) if self.total else found


def _get_rounding_error(epoch: float) -> float:
    """Return by how much the printed epoch may be off."""
    if round(epoch, DECIMALS) == epoch:
        return float(0.5 * 10**-DECIMALS)
    return float(0.5 * 10 ** (math.floor(math.log10(epoch)) + 1 - DIGITS)) if epoch > 0 else 0.0
