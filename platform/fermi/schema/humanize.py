"""Formats counts and sizes in three digits: parameters and tokens in powers of 1000 (`137K`, `1.3B`), bytes in powers
of 1024 (`286 KiB`). The console has the same rules (frontend/src/lib/format.ts); tests/shared/figures.json holds both
to the same texts."""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal


def format_count(number: float) -> str:
    return _in_units(number, 1000, ("", "K", "M", "B", "T"))


def format_bytes(number_of_bytes: float) -> str:
    return _in_units(number_of_bytes, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def _in_units(number: float, base: int, units: Sequence[str]) -> str:
    """Return the number in the first unit in which it is, rounded, below the next unit."""
    rounded = [_three_digits(number / base**power) for power in range(len(units))]
    fits = next((power for power, value in enumerate(rounded) if value < base), -1)
    return f"{rounded[fits].normalize():f}{units[fits]}"


def _three_digits(number: float) -> Decimal:
    exact = Decimal(number)
    return exact.quantize(Decimal(1).scaleb(min(exact.adjusted() - 2, 0)), ROUND_HALF_UP)
