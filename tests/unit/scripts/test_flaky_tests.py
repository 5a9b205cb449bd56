"""The record of flaky tests (tests/flaky.toml), and what is read of a run's JUnit files."""

from pathlib import Path

import pytest

from scripts import flaky_tests
from scripts.flaky_tests import CaseOutcome, FlakyTest

CALM = [CaseOutcome(f"tests/test_calm.py::test_{number}", 10.0) for number in range(100)]
FAILED = CaseOutcome("tests/test_a.py::test_x[1]", 1.0, failed=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("class TestB:\n    async def test_y(self): ...\ndef test_x(): ...\n")
    (tmp_path / "frontend/src").mkdir(parents=True)
    (tmp_path / "frontend/src/a.test.ts").touch()
    (tmp_path / "frontend/e2e").mkdir()
    (tmp_path / "frontend/e2e/a.test.js").write_text('test("a task trains", async () => {});\n')
    return tmp_path


def test_the_record_of_this_repository_is_valid() -> None:
    entries = flaky_tests.load_record()
    assert flaky_tests.find_problems(entries) == []
    assert [entry.test for entry in entries] == sorted(entry.test for entry in entries)


def test_a_test_that_failed_and_passed_alone_is_flaky() -> None:
    assert flaky_tests.find_flaky([*CALM, FAILED], failed_again=[]) == [FAILED.name]


def test_a_test_that_failed_alone_too_is_not_flaky() -> None:
    assert flaky_tests.find_flaky([*CALM, FAILED], failed_again=[FAILED.name]) == []
    assert flaky_tests.find_flaky([*CALM, FAILED], failed_again=None) == []


@pytest.mark.parametrize(
    ("seconds", "others", "slow"),
    [
        (121.0, 1800.0, True),
        (119.0, 200.0, False),  # under two minutes, whatever its share
        (121.0, 2600.0, False),  # under a twentieth, whatever the clock
        (360.0, 5400.0, True),  # the first, on a machine that is three times as slow
        (354.0, 7000.0, False),
    ],
)
def test_slow_is_over_two_minutes_and_a_twentieth_of_the_part(seconds: float, others: float, slow: bool) -> None:
    tests = [CaseOutcome("one", seconds), *(CaseOutcome(f"other {number}", others / 100) for number in range(100))]
    assert list(flaky_tests.find_slow(tests)) == (["one"] if slow else [])


def test_a_test_seen_again_is_reopened() -> None:
    entries = flaky_tests.add_to_record([FlakyTest("other", ("d1 c1",))], "test", "d1 c1")
    assert entries == [FlakyTest("other", ("d1 c1",)), FlakyTest("test", ("d1 c1",))]
    mended = [FlakyTest("test", ("d1 c1",), why="a race", done="a lock")]
    assert flaky_tests.add_to_record(mended, "test", "d2 c2") == [FlakyTest("test", ("d1 c1", "d2 c2"), why="a race")]


def test_the_record_round_trips(tmp_path: Path) -> None:
    file = tmp_path / "flaky.toml"
    assert flaky_tests.load_record(file) == []
    odd = 'tests/test_a.py::test_x["\\n\x7f\x1b-失败]'
    entries = [FlakyTest(odd, ("d1 c1",), why='it says "no"\n'), FlakyTest("z", tuple(f"d{day}" for day in range(12)))]
    flaky_tests.save_record(entries[::-1], file)
    first, last = flaky_tests.load_record(file)
    assert first == entries[0]
    assert last.seen == entries[1].seen[-10:]
    flaky_tests.save_record([first, last], file)
    assert flaky_tests.load_record(file) == [first, last]


@pytest.mark.parametrize(
    "test",
    [
        "tests/test_a.py::test_x[a::b-[1]]", "tests/test_a.py::TestB::test_y", "src/a.test.ts::a page > opens",
        "a task trains",
    ],
)  # fmt: skip
def test_open_and_obsolete_entries_fail_the_check(test: str, repository: Path) -> None:
    def problems(entry: FlakyTest) -> list[str]:
        return flaky_tests.find_problems([entry], repository)

    assert problems(FlakyTest(test, ("d1 c1",))) == []
    assert problems(FlakyTest(test, ("d1 c1", "d2 c2"), why="a race", done="a lock")) == []
    assert problems(FlakyTest(test, ("d1 c1", "d2 c2"))) == [
        f"{test}: seen d1 c1, d2 c2: find the cause, then write `why` and `done`"
    ]
    assert problems(FlakyTest(test, ("d1 c1",), done="a lock")) == [f"{test}: `done` without `why`"]
    for gone in (test.replace("a", "b"), "tests/test_a.py::test_z"):
        assert "remove the entry" in problems(FlakyTest(gone, ("d1 c1",)))[0]


def test_names_are_accepted_by_the_runners(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(
        """<testsuites><testsuite>
        <testcase file="tests/unit/test_a.py" classname="tests.unit.test_a" name="test_x[1.5-b]" time="0.25"/>
        <testcase file="tests/unit/test_a.py" classname="tests.unit.test_a.TestB" name="test_y" time="1"><error/>
        </testcase>
        <testcase classname="src/api/page.test.ts" name="a page &gt; opens" time="2"><failure>no</failure></testcase>
        <testcase classname="test" name="a task trains" time="3"><skipped/></testcase>
        </testsuite></testsuites>""",
        encoding="utf-8",
    )
    assert flaky_tests.read_junit(file) == [
        CaseOutcome("tests/unit/test_a.py::test_x[1.5-b]", 0.25),
        CaseOutcome("tests/unit/test_a.py::TestB::test_y", 1.0, failed=True),
        CaseOutcome("src/api/page.test.ts::a page > opens", 2.0, failed=True),
        CaseOutcome("a task trains", 3.0),
    ]
    assert flaky_tests.read_junit(tmp_path / "none.xml") == []


def test_failure_messages_with_control_characters_are_read(tmp_path: Path) -> None:
    """As node's reporter writes an error of Playwright's, with the colours of its call log."""
    file = tmp_path / "node.xml"
    case = '<testcase name="it drags" time="1.5" classname="test" failure="log:\x1b[2m"><failure>\x1b[2m\x00'
    file.write_text(
        f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>{case}…</failure></testcase></testsuites>',
        encoding="utf-8",
    )
    assert flaky_tests.read_junit(file) == [CaseOutcome("it drags", 1.5, failed=True)]
