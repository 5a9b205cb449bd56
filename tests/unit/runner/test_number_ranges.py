"""Numbers of ranks and nodes as text."""

import pytest

from fermi.runner.number_ranges import format_ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 3, 8), "0-3,8"), ((8, 2, 1), "1-2,8"), (range(1, 1001), "1-1000")],
)
def test_numbers_that_follow_each_other_are_a_range(numbers: tuple[int, ...], text: str) -> None:
    assert format_ranges(numbers) == text


def test_a_text_may_have_another_separator() -> None:
    assert format_ranges([1, 2, 3, 7], ", ") == "1-3, 7"
