"""The benchmarks' own arithmetic; they themselves run with `make bench`."""

from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bench import history, live_platform, scaling, temp_platform
from bench.__main__ import SECTIONS, main
from bench.table import Figure, FigureTarget, format_number, print_table
from tests import services


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_can_be_measured(section: str) -> None:
    assert callable(import_module(f"bench.{section}").measure)


def test_a_section_without_its_servers_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Path:
        raise services.MissingServerError("PostgreSQL's server is not installed")

    monkeypatch.setattr(services, "_postgres_bin", missing)
    monkeypatch.setattr(temp_platform, "install_servers", lambda: None)
    monkeypatch.setattr(temp_platform, "prepare_database", lambda data: None)
    monkeypatch.setattr(live_platform, "close_shared_platform", lambda: None)
    temp_platform.prepare_databases()
    assert main(["size", "telemetry", "lists"]) == 0
    said = capsys.readouterr()
    lines = [f"left out: {name}: PostgreSQL's server is not installed" for name in ("size", "telemetry", "lists")]
    assert [line for line in said.out.splitlines() if line in lines] == lines
    assert "Traceback" not in said.err


def test_a_target_compares_the_value_or_the_ratio() -> None:
    assert Figure("f", 2.0, "s", target=FigureTarget(2)).met
    assert not Figure("f", 2.1, "s", target=FigureTarget(2)).met
    assert Figure("f", 2.0, "s", 10.0, "by hand", FigureTarget(0.2, applies_to="ratio")).met
    assert not Figure("f", 2.0, "s", 9.0, "by hand", FigureTarget(0.2, applies_to="ratio")).met
    assert Figure("f", 60, "/s", target=FigureTarget(60, "at least")).met
    assert not Figure("f", 59, "/s", target=FigureTarget(60, "at least")).met
    assert Figure("f", 1.0, "s").met is None


def test_runs_are_compared_by_ratios_and_shares_only(tmp_path: Path) -> None:
    kept = tmp_path / "history.json"
    assert history.load_last_run(kept) == ("", {})
    figures = [
        Figure("with a ratio", 3.0, "ms", 2.0, "by hand"),
        Figure("alone, with a bound", 1.5, "s", target=FigureTarget(2)),
        Figure("alone", 7.0, "s"),
        Figure("none may be missing", 0, "", target=FigureTarget(0)),
    ]
    history.save_run("0.1", [("one", figures)], kept)
    assert history.load_last_run(kept) == ("0.1", {"one: with a ratio": 1.5, "one: alone, with a bound": 0.75})

    history.save_run("0.2", [("one", figures[:1])], kept)
    history.save_run("0.2", [("two", figures[:1])], kept)
    assert history.load_last_run(kept) == ("0.2", {"one: with a ratio": 1.5, "two: with a ratio": 1.5})


def test_regressions_are_marked_and_noise_is_not() -> None:
    slower, varies = Figure("a", 2.0, "ms", 1.0, "bare"), Figure("b", 1.1, "ms", 1.0, "bare")
    fewer = Figure("c", 50, "/s", target=FigureTarget(60, "at least"))
    assert slower.worse(1.5)
    assert not varies.worse(1.0)
    assert fewer.worse(1.1)
    assert not Figure("d", 0, "", target=FigureTarget(0)).worse(1.0)
    text = StringIO()
    before = {"s: a": 1.5, "s: b": 1.0, "s: c": 0.83}
    print_table([("s", [slower, varies, fewer])], Console(file=text, width=150), ("0.1", before))
    head, *lines = text.getvalue().splitlines()
    assert "0.1" in head
    assert ["worse" in line for line in lines] == [True, False, False]


def test_without_details_only_targets_and_regressions_are_listed() -> None:
    figures = [
        Figure("aim", 2.0, "ms", target=FigureTarget(3)),
        Figure("alone", 2.0, "ms"),
        Figure("slower", 2.0, "ms", 1.0, "bare"),
        Figure("as fast", 2.0, "ms", 1.0, "bare"),
    ]
    before = ("0.1", {"s: slower": 1.5, "s: as fast": 2.0})
    shown = {}
    for details in (False, True):
        text = StringIO()
        print_table([("s", figures)], Console(file=text, width=150), before, details=details)
        shown[details] = [line for line in text.getvalue().splitlines() if line]
    assert [line[0] for line in shown[False][1:]] == ["s", " "]
    assert ["slower" in line for line in shown[False][1:]] == [False, True]
    assert len(shown[True]) == 5


def test_numbers_have_three_significant_digits() -> None:
    assert [format_number(value) for value in (0, 0.07123, 3.189, 43.61, 1536.4)] == [
        "0",
        "0.0712",
        "3.19",
        "43.6",
        "1,536",
    ]


def test_the_speed_up_table_has_the_documents_columns() -> None:
    """By the document's own figures: 1.8, 3.5 (87 %: 3.49) and 6.8 times."""
    seconds = {1: 1.0, 2: 2 / 1.8, 4: 4 / 3.49, 8: 8 / 6.8}
    table = scaling.print_report(seconds, cores=2)
    cells = [line.split()[-4:] for line in table.splitlines()]
    assert ["1.00x", "1.80x", "3.49x", "6.80x"] in cells
    assert ["100%", "90%", "87%", "85%"] in cells
    assert "communication" in table
