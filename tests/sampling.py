"""How much of the long rows of cases a run takes: a part that its seed chooses; `make test ALL=1` takes all.

`FERMI_TEST_SEED=7 pytest …` repeats what the seed 7 chose. `make test` takes the seed from the commit, so that the same
commit takes the same cases again; a run of pytest alone draws one, and its header names it.
"""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

ALL = bool(os.environ.get("FERMI_TEST_ALL"))
VARIABLE = "FERMI_TEST_SEED"
MAX_EXAMPLES = 100 if ALL else 25
"""Of a Hypothesis test that names no number of its own."""


def seed() -> str:
    """Return this run's seed; its test processes inherit it."""
    return os.environ.setdefault(VARIABLE, str(random.randrange(1_000_000)))


def chance() -> random.Random:
    """Return numbers that follow from the seed and the test that asks, whatever ran before it."""
    return random.Random(f"{seed()} {os.environ.get('PYTEST_CURRENT_TEST')}")


def some(cases: Sequence[T], one_of: int) -> Sequence[T]:
    """Return every `one_of`th case, beginning with one of the first that the seed chooses."""
    return cases if ALL else cases[chance().randrange(min(one_of, len(cases))) :: one_of]


def stride(every: int, one_of: int) -> tuple[int, int]:
    """Return where a row begins (counted from 1), and how far each case is from the one before."""
    return (1, every) if ALL else (chance().randint(1, every), every * one_of)


def examples(number: int) -> int:
    """Return how many examples a Hypothesis test tries that takes `number` of them in `make test ALL=1`."""
    return max(number * MAX_EXAMPLES // 100, 5)
