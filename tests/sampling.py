"""Long rows of cases. A run of all tests takes a part of each, another one each time; `make test ALL=1` takes all."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

ALL = bool(os.environ.get("FERMI_TEST_ALL"))


def some(cases: Sequence[T], one_of: int) -> Sequence[T]:
    """Every so many, from one of the first that is drawn."""
    return cases if ALL else cases[random.randrange(min(one_of, len(cases))) :: one_of]


def stride(every: int, one_of: int) -> tuple[int, int]:
    """Where a row begins (counted from 1), and how far each case is from the one before."""
    return (1, every) if ALL else (random.randint(1, every), every * one_of)
