"""Moments of cron expressions in a time zone, also where the clocks change."""

from datetime import UTC, datetime
from itertools import islice

import pytest

from apps.templates import cron

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def list_next(expression: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    moments = islice(cron.iterate_moments(expression, zone, at(after)), count)
    return [f"{moment:%m-%dT%H:%M}" for moment in moments]


def test_a_moment_in_the_hour_that_does_not_exist_comes_right_after_it() -> None:
    assert list_next("30 2 * * *", "2026-03-27T12:00", 3) == ["03-28T01:30", "03-29T01:00", "03-30T00:30"]


def test_a_fixed_moment_in_the_hour_that_comes_twice_comes_once() -> None:
    assert list_next("30 2 * * *", "2026-10-23T12:00", 3) == ["10-24T00:30", "10-25T00:30", "10-26T01:30"]


def test_what_runs_every_hour_goes_on_as_time_does() -> None:
    found = list_next("30 * * * *", "2026-10-24T23:00", 4)
    assert found == ["10-24T23:30", "10-25T00:30", "10-25T01:30", "10-25T02:30"]
    assert list_next("30 * * * *", "2026-03-28T23:00", 3) == ["03-28T23:30", "03-29T00:30", "03-29T01:30"]


@pytest.mark.parametrize("zone", [BERLIN, "UTC", "Asia/Kathmandu", "America/St_Johns"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 * * * *", "0 0 1 * *", "15 3 * * SUN", "0 12 L * *"])
@pytest.mark.parametrize("day", ["2026-03-20", "2026-10-20"])
def test_the_past_moments_are_those_that_came_one_after_the_other(expression: str, zone: str, day: str) -> None:
    begin = at(f"{day}T00:00")
    first = cron.find_next(expression, zone, begin)
    assert first is not None
    moments = [first, *islice(cron.iterate_moments(expression, zone, first), 700)]
    until = moments[-1]
    assert cron.list_past(expression, zone, first, until) == moments[-cron.MAX_PAST :]
    assert len(set(moments)) == len(moments)


def test_very_many_past_moments_are_bounded_and_the_newest_are_there() -> None:
    found = cron.list_past("* * * * *", BERLIN, at("2020-01-01T00:00"), at("2026-11-28T18:00"))
    assert len(found) == cron.MAX_PAST
    assert found[-2:] == [at("2026-11-28T17:58"), at("2026-11-28T17:59")] or found[-1] == at("2026-11-28T18:00")
    assert cron.list_past("* * * * *", BERLIN, at("2026-01-01T00:00"), at("2025-01-01T00:00")) == []


@pytest.mark.parametrize(
    ("expression", "zone", "codes"),
    [
        ("0 0 * * *", "UTC", []),
        ("0 0 30 2 *", "UTC", ["CRON_INVALID"]),
        ("0 0 * *", "UTC", ["CRON_FIELDS"]),
        ("0 0 * * * *", "UTC", ["CRON_FIELDS"]),
        ("a b c d e", "Nowhere", ["TIMEZONE_UNKNOWN", "CRON_INVALID"]),
        ("0 0 * * *", "../etc/passwd", ["TIMEZONE_UNKNOWN"]),
        ("*/0 * * * *", "UTC", ["CRON_INVALID"]),
        ("9" * 90 + " * * * *", "UTC", ["CRON_INVALID"]),
    ],
)
def test_what_is_wrong_with_an_expression_is_named(expression: str, zone: str, codes: list[str]) -> None:
    assert [problem.code for problem in cron.find_problems(expression, zone, at("2026-11-28T18:00"))] == codes
