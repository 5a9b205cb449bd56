"""What a query can be continued with."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi.runs.completion import Completion, complete_query
from fermi.runs.fields import Field, FieldGroup
from fermi.runs.query import QueryError, parse_query


class Known:
    """Runs with two parameters, two curves and some values."""

    def list_names(self, group: FieldGroup, part: str) -> Iterable[str]:
        names = ["lr", "status", "my name"] if group is FieldGroup.PARAMETER else ["val_loss", "loss"]
        return [name for name in names if part.lower() in name]

    def list_values(self, field: Field, part: str) -> Iterable[str]:
        values = {"owner": ["ann", "bo"], "data": ["wiki v2"], "lr": ["0.1"]}.get(field.name, [])
        return [value for value in values if part.lower() in value]


def complete(text: str) -> Completion:
    """Return the completion at `|`."""
    return complete_query(text.replace("|", ""), text.index("|"), Known())


def list_texts(text: str) -> list[str]:
    return [item.text for item in complete(text).items]


@pytest.mark.parametrize(
    ("text", "item", "start", "end"),
    [
        ("sta|", "status:", 0, 3),
        ("a -sta|", "status:", 3, 6),
        ("(sta|", "status:", 1, 4),
        ("sta|tus:failed", "status", 0, 6),
        ("status:fa|", "failed", 7, 9),
        ("status:failed,st|x y", "stopped", 14, 17),
        ("status: |", "failed", 8, 8),
        ("owner:|", "ann", 6, 6),
        ('data:"wi|', '"wiki v2"', 5, 8),
        ("l|", "lr:", 0, 1),
        ("param.s|", "param.status:", 0, 7),
        ("my|", '"my name":', 0, 2),
        ("metric.va|", "metric.val_loss.best", 0, 9),
        ("lr:0|", "0.1", 3, 4),
        ("a o|", "or", 2, 3),
    ],
)
def test_a_place_can_be_continued(text: str, item: str, start: int, end: int) -> None:
    found = complete(text)
    assert item in [one.text for one in found.items]
    assert (found.start, found.end) == (start, end)


def test_an_empty_query_begins_with_the_fields() -> None:
    assert list_texts("|")[:3] == ["id:", "name:", "status:"]


def test_behind_an_operator_that_a_field_has_not_nothing_is_proposed() -> None:
    assert list_texts("status~fa|") == []
    assert list_texts("nodes>|") == []


@given(st.text(alphabet='ab:"\\(),-<>=!~ *lrstatus.metric', max_size=30), st.integers(-2, 40))
def test_any_text_can_be_completed_at_any_position(text: str, position: int) -> None:
    found = complete_query(text, position, Known())
    assert 0 <= found.start <= found.end <= len(text)


def find_error_end(text: str) -> int:
    """Return where the first error ends; the length of a text without one."""
    try:
        parse_query(text)
    except QueryError as error:
        return error.end
    return len(text)


@given(st.sampled_from(["", "sta", "metric.v", "param.", "owner:", "data:", "status:f", "a or ", "-l"]))
def test_what_is_proposed_is_no_error_at_its_place(text: str) -> None:
    found = complete_query(text, len(text), Known())
    for item in found.items:
        whole = text[: found.start] + item.text
        assert find_error_end(whole) >= len(whole) - 1
