"""Curves of a run as rows of a table."""

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from fermi.client.history import History, Run


class Answers:
    """Stands in for the transport: the platform's answers, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = list(answers), list[Mapping[str, Any]]()

    def call(self, method: str, path: str, *, params: Mapping[str, Any]) -> Any:
        self.requests.append({"path": path, **params})
        return self.answers.pop(0)


def answer(*curves: Any, complete: bool = True) -> Any:
    return {
        "complete": complete,
        "series": [{"metric": name, "x": x, "y": y, "smoothed": None} for name, x, y in curves],
    }


def test_metrics_with_places_in_common_are_one_row():
    answers = Answers(answer(("loss", [0, 10], [3.0, 2.0]), ("acc", [10, 20], [0.5, 0.6])))
    history = Run(answers, "task-1").history("loss", "acc", axis="tokens")
    assert list(history) == [
        {"tokens": 0, "loss": 3.0, "acc": None},
        {"tokens": 10, "loss": 2.0, "acc": 0.5},
        {"tokens": 20, "loss": None, "acc": 0.6},
    ]
    assert (history[0]["loss"], len(history[1:]), history.columns) == (3.0, 2, ["tokens", "loss", "acc"])
    assert answers.requests[0]["metric"] == ["loss", "acc"]


def test_a_history_is_requested_until_all_points_are_read():
    answers = Answers(answer(("loss", [0], [3.0]), complete=False), answer(("loss", [0, 1], [3.0, 2.0])))
    assert len(Run(answers, "task-1").history("loss")) == 2


def test_without_names_all_metrics_are_read():
    answers = Answers({"metrics": [{"name": "loss"}]}, answer(("loss", [0], [3.0])))
    assert list(Run(answers, "task-1").history()) == [{"step": 0, "loss": 3.0}]
    assert list(Run(Answers({"metrics": []}), "task-1").history()) == []


def test_data_frames_need_their_library(monkeypatch):
    history = History([{"step": 0.0, "loss": 3.0}], ["step", "loss"])
    for name, make in (("pandas", history.to_pandas), ("polars", history.to_polars)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=name):
            make()
    assert repr(history) == "History(1 rows of step, loss)"


def test_a_data_frame_has_the_columns_of_the_history():
    pandas = pytest.importorskip("pandas")
    frame = History([{"step": 0.0, "loss": None}], ["step", "loss"]).to_pandas()
    assert list(frame.columns) == ["step", "loss"]
    assert pandas.isna(frame["loss"][0])


def test_an_empty_metric_is_a_column_of_floats_and_times_are_moments():
    history = History([{"time": 1795903500.5, "loss": None}], ["time", "loss"])
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = history.to_pandas()
    assert (str(frame["loss"].dtype), frame["time"][0].isoformat()) == ("float64", "2026-11-28T22:05:00.500000+00:00")
    assert pandas.isna(frame["loss"][0])
    table = history.to_polars()
    assert (table["loss"].dtype, table["time"][0].isoformat()) == (
        polars.Float64,
        "2026-11-28T22:05:00.500000+00:00",
    )


def test_configuration_has_the_types_of_its_values():
    values = {"lr": "0.001", "layers": "12", "amp": "true", "name": "adam", "seed": "None", "limit": "inf", "v": "1_0"}
    answers = Answers({"parameters": [{"name": name, "value": value} for name, value in values.items()]})
    answers.call = lambda method, path, params=None: answers.answers.pop(0)
    assert Run(answers, "task-1").config == {
        "lr": 0.001, "layers": 12, "amp": True, "name": "adam", "seed": None, "limit": "inf", "v": "1_0",
    }  # fmt: skip


def test_a_summary_has_the_newest_value_of_each_curve():
    names = [f"m{number:02}" for number in range(25)]
    curves = [{"metric": name, "last": 1.5} for name in names[:24]] + [{"metric": names[24], "last": None}]
    answers = Answers(
        {"metrics": [{"name": name} for name in names]},
        {"complete": True, "series": curves[:20]},
        {"complete": True, "series": curves[20:]},
    )
    assert Run(answers, "task-1").summary == dict.fromkeys(names[:24], 1.5)
    assert [len(request.get("metric", ())) for request in answers.requests] == [0, 20, 5]
