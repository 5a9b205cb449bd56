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
