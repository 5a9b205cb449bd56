"""The benchmarks' own arithmetic; they themselves run with `make bench`."""

from importlib import import_module

import pytest

from bench import scaling
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


def test_the_table_of_speed_ups_reads_as_the_document_s_and_says_what_is_lost() -> None:
    """By the document's own figures: 1.8, 3.5 (87 %: 3.49) and 6.8 times."""
    seconds = {1: 1.0, 2: 2 / 1.8, 4: 4 / 3.49, 8: 8 / 6.8}
    table = scaling.report(seconds, cores=2)
    cells = [line.split()[-4:] for line in table.splitlines()]
    assert ["1.00x", "1.80x", "3.49x", "6.80x"] in cells
    assert ["100%", "90%", "87%", "85%"] in cells
    assert "communication" in table
