"""Names of attempts and of runs of environments."""

import pytest

from fermi.runner.run_names import build_run_name, parse_run_name


@pytest.mark.parametrize(("owner", "number"), [("task-7kq2m9x4td", 3), ("env-7kq2m9x4td", 12), ("env-a-b", "0")])
def test_a_name_is_taken_apart_as_it_was_made(owner: str, number: int | str) -> None:
    assert parse_run_name(build_run_name(owner, number)) == (owner, str(number))


@pytest.mark.parametrize(
    ("name", "owner", "number"),
    [("task-x-007", "task-x", "007"), ("task-x-", "task-x", ""), ("task", "", "task"), ("", "", "")],
)
def test_a_name_that_is_no_runs_is_taken_apart_at_its_last_hyphen(name: str, owner: str, number: str) -> None:
    assert parse_run_name(name) == (owner, number)
