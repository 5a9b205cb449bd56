from pathlib import Path

import pytest

from scripts import flaky_tests
from scripts.flaky_tests import Outcome, Run

CALM = [Outcome(f"tests/test_calm.py::test_{number}", 10.0) for number in range(100)]


def runs(*named: dict[str, str]) -> list[Run]:
    return [Run(f"2026-01-{day:02}T08:00Z", f"c{day}", {}, each) for day, each in enumerate(named, 1)]


def test_a_test_that_failed_and_passed_alone_is_named() -> None:
    failed = Outcome("tests/test_a.py::test_x", 1.0, failed=True)
    assert flaky_tests.remarks([*CALM, failed], failed_again=[]) == {failed.name: "failed in company, passed alone"}


def test_a_test_that_failed_alone_too_is_simply_broken() -> None:
    failed = Outcome("tests/test_a.py::test_x", 1.0, failed=True)
    assert flaky_tests.remarks([*CALM, failed], failed_again=[failed.name]) == {}
    assert flaky_tests.remarks([*CALM, failed], failed_again=None) == {}


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
def test_slow_is_over_two_minutes_and_over_a_twentieth_of_the_part(seconds: float, others: float, slow: bool) -> None:
    tests = [Outcome("one", seconds), *(Outcome(f"other {number}", others / 100) for number in range(100))]
    assert list(flaky_tests.remarks(tests, None)) == (["one"] if slow else [])


def test_a_name_in_two_runs_is_too_often_and_one_in_one_is_not() -> None:
    kept = runs({"a": "failed", "b": "failed"}, {}, {"a": "slow"})
    assert flaky_tests.too_often(kept) == {"a": ["2026-01-01T08:00Z at c1: failed", "2026-01-03T08:00Z at c3: slow"]}


def test_what_lies_ten_runs_back_no_longer_counts() -> None:
    named: list[dict[str, str]] = [{"a": "failed"}, *({} for _ in range(8)), {"a": "failed"}]
    assert list(flaky_tests.too_often(runs(*named))) == ["a"]
    assert flaky_tests.too_often(runs(*named, {})) == {}


def test_what_is_mended_starts_anew_and_leaves_the_others() -> None:
    kept = flaky_tests.mended(runs({"a": "failed", "b": "failed"}, {"a": "failed", "b": "failed"}), "a")
    assert list(flaky_tests.too_often(kept)) == ["b"]
    assert list(flaky_tests.too_often([*kept, *runs({"a": "failed"})])) == ["b"]


def test_ten_runs_are_kept_and_read_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "build" / "ledger.json"
    assert flaky_tests.load(file) == []
    kept = runs(*({f"test {number}": "失败"} for number in range(12)))
    flaky_tests.save(kept, file)
    assert flaky_tests.load(file) == kept[-10:]


def test_the_check_says_what_when_and_how_it_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flaky_tests, "FILE", tmp_path / "ledger.json")
    assert flaky_tests.main([]) == 0
    flaky_tests.save(runs({"tests/test_a.py::test_x": "failed"}, {"tests/test_a.py::test_x": "slow"}))
    assert flaky_tests.main([]) == 1
    said = capsys.readouterr().out
    assert "tests/test_a.py::test_x\n  2026-01-01T08:00Z at c1: failed\n  2026-01-02T08:00Z at c2: slow\n" in said
    assert "scripts/flaky_tests.py mended 'TEST'" in said
    assert flaky_tests.main(["mended", "tests/test_a.py::test_y"]) == 1
    assert flaky_tests.main(["mended", "tests/test_a.py::test_x"]) == 0
    assert flaky_tests.main([]) == 0


def test_names_are_those_that_the_runners_take(tmp_path: Path) -> None:
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
        Outcome("tests/unit/test_a.py::test_x[1.5-b]", 0.25),
        Outcome("tests/unit/test_a.py::TestB::test_y", 1.0, failed=True),
        Outcome("src/api/page.test.ts::a page > opens", 2.0, failed=True),
        Outcome("a task trains", 3.0),
    ]
    assert flaky_tests.read_junit(tmp_path / "none.xml") == []


def test_what_a_test_failed_with_may_hold_what_xml_cannot(tmp_path: Path) -> None:
    """As node's reporter writes an error of Playwright's, with the colours of its call log."""
    file = tmp_path / "node.xml"
    case = '<testcase name="it drags" time="1.5" classname="test" failure="log:\x1b[2m"><failure>\x1b[2m\x00'
    file.write_text(
        f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>{case}…</failure></testcase></testsuites>',
        encoding="utf-8",
    )
    assert flaky_tests.read_junit(file) == [Outcome("it drags", 1.5, failed=True)]
