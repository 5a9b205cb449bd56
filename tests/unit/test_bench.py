"""The benchmarks' own arithmetic; they themselves run with `make bench`."""

from importlib import import_module

import pytest

from bench.__main__ import SECTIONS
from bench.table import Figure, Target, number


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_can_be_measured(section: str) -> None:
    assert callable(import_module(f"bench.{section}").measure)


def test_a_target_looks_at_the_value_or_at_the_ratio() -> None:
    assert Figure("f", 2.0, "s", target=Target(2)).met
    assert not Figure("f", 2.1, "s", target=Target(2)).met
    assert Figure("f", 2.0, "s", 10.0, "by hand", Target(0.2, of="ratio")).met
    assert not Figure("f", 2.0, "s", 9.0, "by hand", Target(0.2, of="ratio")).met
    assert Figure("f", 60, "/s", target=Target(60, "at least")).met
    assert not Figure("f", 59, "/s", target=Target(60, "at least")).met
    assert Figure("f", 1.0, "s").met is None


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(value) for value in (0, 0.07123, 3.189, 43.61, 1536.4)] == ["0", "0.0712", "3.19", "43.6", "1,536"]
