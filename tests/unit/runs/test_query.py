"""The language of queries over runs: what is parsed, what is refused, and where."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.runs import query
from fermi.runs.fields import FIELDS, FieldGroup, Statistic, is_higher_better, quote_name, resolve_field
from fermi.runs.query import And, Condition, Negation, Or, Query, QueryError, Word, parse_query


def parse_one(text: str) -> Condition:
    root = parse_query(text).root
    assert isinstance(root, Condition)
    return root


def parse_or_refuse(text: str) -> Query | QueryError:
    try:
        return parse_query(text)
    except QueryError as error:
        return error


def refuse(text: str) -> QueryError:
    with pytest.raises(QueryError) as raised:
        parse_query(text)
    return raised.value


def test_a_space_means_and_and_or_binds_less() -> None:
    root = parse_query("a b or -c").root
    assert root == Or((And((Word("a"), Word("b"))), Negation(Word("c"))))


def test_parentheses_change_what_belongs_together() -> None:
    assert parse_query("a (b or c)").root == And((Word("a"), Or((Word("b"), Word("c")))))


def test_an_empty_query_has_no_condition() -> None:
    assert parse_query("  ").root is None
    assert str(parse_query("")) == ""


@pytest.mark.parametrize(
    ("text", "name", "group"),
    [
        ("lr>1", "lr", FieldGroup.PARAMETER),
        ("param.status:x", "status", FieldGroup.PARAMETER),
        ('param."my name":x', "my name", FieldGroup.PARAMETER),
        ('"my name":x', "my name", FieldGroup.PARAMETER),
        ("Status:failed", "status", FieldGroup.TASK),
        ("metric.val/loss<3", "val/loss", FieldGroup.METRIC),
        ("gpuhours>3", "gpuHours", FieldGroup.COST),
    ],
)
def test_a_name_means_a_field(text: str, name: str, group: FieldGroup) -> None:
    assert (parse_one(text).field.name, parse_one(text).field.group) == (name, group)


def test_a_curve_without_a_suffix_means_its_last_value() -> None:
    assert parse_one("metric.a.b<3").field.statistic is Statistic.LAST
    assert parse_one("metric.a.best<3").field.statistic is Statistic.BEST
    assert parse_one("metric.a.min.last<3").field.name == "a.min"


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), ("-1e-4", -1e-4), (".5", 0.5), ("10k", 10_000), ("2.5M", 2.5e6), ("1G", 1e9), ("90%", 0.9),
     ("1e999", None), ("nan", None), ("1_000", None), ("", None), ("k", None)],
)  # fmt: skip
def test_numbers_have_suffixes(text: str, number: float | None) -> None:
    assert query.parse_number(text) == (None if number is None else pytest.approx(number))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("7d", 604_800), ("2w", 1_209_600), ("0.5h", 1800), ("7", None), ("999999w", None)],
)
def test_durations_have_units(text: str, seconds: float | None) -> None:
    assert query.parse_duration(text) == seconds


def test_a_time_means_all_of_its_day_minute_or_month() -> None:
    day = query.parse_time("2026-11-01")
    assert day == (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    month = query.parse_time("2026-12")
    assert month == (datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    minute = query.parse_time("2026-11-01T10:30+02:00")
    assert minute == (datetime(2026, 11, 1, 8, 30, tzinfo=UTC), datetime(2026, 11, 1, 8, 31, tzinfo=UTC))
    for wrong in ("2026-13-01", "2026-02-30", "9999-12-31", "0001-01-01T00:00+14:00", "2026", "today"):
        assert query.parse_time(wrong) is None


def test_quotes_make_a_text_of_what_would_be_a_number_or_a_pattern() -> None:
    [value] = parse_one("lr:0.1").values
    assert (value.number, value.is_pattern) == (0.1, False)
    [value] = parse_one('lr:"0.1"').values
    assert (value.text, value.number) == ("0.1", None)
    [value] = parse_one('name:"a*"').values
    assert not value.is_pattern
    assert parse_one(r'name:"say \"a\""').values[0].text == 'say "a"'


def test_a_field_may_have_one_of_several_values() -> None:
    assert [value.text for value in parse_one('status:failed, stopped,"queued"').values] == [
        "failed", "stopped", "queued",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "start", "end"),
    [
        ("a or", "QUERY_CONDITION_EXPECTED", 4, 4),
        ("a or or b", "QUERY_CONDITION_EXPECTED", 5, 7),
        ("()", "QUERY_CONDITION_EXPECTED", 1, 2),
        ("-", "QUERY_CONDITION_EXPECTED", 1, 1),
        ("a)", "QUERY_PARENTHESIS_UNEXPECTED", 1, 2),
        ("(a (b)", "QUERY_PARENTHESIS_OPEN", 0, 1),
        ("lr>", "QUERY_VALUE_EXPECTED", 3, 3),
        ("lr:1,", "QUERY_VALUE_EXPECTED", 5, 5),
        ("lr:(1)", "QUERY_VALUE_EXPECTED", 3, 4),
        (":x", "QUERY_NAME_EXPECTED", 0, 2),
        ("metric.:3", "QUERY_NAME_EXPECTED", 0, 7),
        ("a,b", "QUERY_UNEXPECTED", 1, 2),
        ('name:"abc', "QUERY_QUOTE_OPEN", 5, 9),
        ("status:nope", "QUERY_CHOICE_UNKNOWN", 7, 11),
        ("status~x", "QUERY_OPERATOR_UNSUITABLE", 6, 7),
        ("x age<7", "QUERY_DURATION_EXPECTED", 6, 7),
        ("created>2026-13-01", "QUERY_TIME_EXPECTED", 8, 18),
        ("nodes>two", "QUERY_NUMBER_EXPECTED", 6, 9),
        ("lr<x", "QUERY_NUMBER_EXPECTED", 3, 4),
        ("lr<1,2", "QUERY_ONE_VALUE_EXPECTED", 5, 6),
        ("a:" + ",".join("b" * 51), "QUERY_TOO_MANY_VALUES", 102, 103),
        ("a " * 51, "QUERY_TOO_MANY_CONDITIONS", 100, 102),
        ("-" * 11 + "a", "QUERY_TOO_DEEP", 11, 12),
        ("a" * 2001, "QUERY_TOO_LONG", 2000, 2001),
    ],
)
def test_an_error_names_its_place(text: str, code: str, start: int, end: int) -> None:
    found = refuse(text)
    assert (found.code, found.start, found.end) == (code, start, end)
    for language in messages.LANGUAGES:
        message, _ = messages.render_text(code, language, **found.params)
        assert message != code
        assert messages.MISSING_VALUE not in message


PIECES = st.sampled_from(
    ["or", "and", "not", "-", "(", ")", '"', "\\", ",", ":", "=", "!=", "<", ">=", "~", "*", " ", "lr", "metric.",
     "param.", "status", "failed", "age", "7d", "created", "2026-11-01", "1e-4", "10k", "名称", "\U0001f600", "x"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=20).map("".join))


@given(TEXTS)
def test_any_text_is_parsed_or_refused_at_a_place_within_it(text: str) -> None:
    found = parse_or_refuse(text)
    if isinstance(found, QueryError):
        assert 0 <= found.start <= found.end <= len(text)


@given(TEXTS)
def test_a_printed_query_means_the_same(text: str) -> None:
    found = parse_or_refuse(text)
    if isinstance(found, Query):
        assert parse_query(str(found)) == found


@given(st.text(min_size=1, max_size=200))
def test_any_name_of_a_parameter_can_be_written(name: str) -> None:
    assert parse_one(f"param.{quote_name(name)}:1").field.name == name
    assert resolve_field(f"param.{name}") == parse_one(f"param.{quote_name(name)}:1").field


@pytest.mark.parametrize("text", ['"' * 2000, " " * 2000, "a" * 2000, '"a' * 1000, "(" * 2000, "-" * 2000, "a:" * 1000])
def test_long_nonsense_is_parsed_or_refused(text: str) -> None:
    found = parse_or_refuse(text)
    assert isinstance(found, Query) or re.fullmatch("QUERY_[A-Z_]+", found.code)


def test_no_property_of_a_task_has_the_name_of_a_prefix() -> None:
    assert not {"param", "parameter", "metric", "or", "and", "not"} & {name.lower() for name in FIELDS}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("metric.val_loss.last", False),
        ("metric.eval/accuracy.min", True),
        ("metric.tokens_per_second", True),
        ("loss", False),
        ("cost", False),
        ("gpuHours", False),
        ("goodput", True),
        ("gpus", None),
        ("duration", None),
        ("param.accuracy", None),
        ("param.loss", None),
        ("param.goodput", None),
    ],
)
def test_a_field_says_whether_a_higher_value_is_better(name: str, expected: bool | None) -> None:
    field = resolve_field(name)
    assert field
    assert is_higher_better(field) is expected
