"""Curves of runs as a picture: what is drawn, and what is refused."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from fermi.client import plots
from fermi.client.errors import FermiError, NotFoundError
from fermi.client.plots import PlottedCurve, RunPlot, plot_runs

SVG = "{http://www.w3.org/2000/svg}"


class Platform:
    """Stands in for the transport: two runs, one of which has an accuracy, too."""

    def __init__(self, **names: str) -> None:
        self.names = names or {"task-a": "first", "task-b": "second"}
        self.requests: list[tuple[str, Any]] = []

    def call(self, method: str, path: str, *, params: Any) -> Any:
        self.requests.append((path, params))
        if missing := [task for task in params["task"] if task not in self.names]:
            raise NotFoundError("not found", code="NOT_FOUND", status=404) if missing else AssertionError
        if path == "/runs/comparison":
            runs = [{"taskId": task, "taskName": self.names[task]} for task in params["task"]]
            return {"runs": runs, "metrics": [{"name": "loss"}, {"name": "acc"}], "machine": ["machine.gpu"]}
        series = [
            {"taskId": task, "metric": metric, "x": [0.0, 10.0], "y": [2.0, 1.0],
             "smoothed": [2.0, 1.5] if params["smooth"] else None}
            for task in params["task"] for metric in params["metric"] if metric == "loss" or task == "task-a"
        ]  # fmt: skip
        return {"complete": True, "series": series}


def draw(plot: RunPlot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.to_svg())


def list_texts(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


def test_each_metric_has_a_panel_and_each_run_a_line():
    platform = Platform()
    plot = plot_runs(platform, ["task-a", "task-b"], ["loss", "acc"], "tokens", 0.0, 200)
    assert repr(plot) == "RunPlot(loss, acc of 2 runs by tokens)"
    root = draw(plot)
    assert len(list(root.iter(f"{SVG}polyline"))) == 3
    assert {"first", "second", "loss", "acc", "tokens"} <= {*list_texts(root)}
    assert platform.requests[-1][1] | {"smooth": None} == {
        "task": ["task-a", "task-b"], "metric": ["loss", "acc"], "axis": "tokens", "points": 200, "smooth": None,
    }  # fmt: skip


def test_a_smoothed_curve_has_the_points_behind_it():
    plot = plot_runs(Platform(), ["task-a"], ["loss"], "step", 0.6, 200)
    assert (plot.curves[0].y, plot.curves[0].raw) == ([2.0, 1.5], [2.0, 1.0])
    assert len(list(draw(plot).iter(f"{SVG}polyline"))) == 2


def test_errors_name_the_run_or_the_metric():
    with pytest.raises(NotFoundError, match="'task-x'"):
        plot_runs(Platform(), ["task-a", "task-x"], ["loss"], "step", 0.0, 200)
    with pytest.raises(FermiError, match="'losss'; there are: loss, acc"):
        plot_runs(Platform(), ["task-a"], ["losss"], "step", 0.0, 200)
    with pytest.raises(ValueError, match="51 runs"):
        plot_runs(Platform(), [f"task-{number}" for number in range(51)], ["loss"], "step", 0.0, 200)
    with pytest.raises(ValueError, match="0 metrics"):
        plot_runs(Platform(), ["task-a"], [], "step", 0.0, 200)


def test_runs_of_the_same_name_are_told_apart_by_their_ids():
    plot = plot_runs(Platform(**{"task-a": "same", "task-b": "same"}), ["task-a", "task-b"], ["loss"], "step", 0.0, 99)
    assert {"same (task-a)", "same (task-b)"} <= {*list_texts(draw(plot))}


def test_names_are_text_in_the_picture():
    names = {"task-a": '<script>alert("1")</script>'}
    svg = plot_runs(Platform(**names), ["task-a"], ["loss"], "step", 0.0, 99).to_svg()
    assert "<script" not in svg
    assert names["task-a"] in list_texts(ElementTree.fromstring(svg))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []), ([5.0], [1.0]), ([0.0, 1.0], [3.0, 3.0]), ([0.0, 1.0], [float("nan"), 1.0]), ([0, 1e300], [0, 1e-9]),
        ([0, 1], [-1e308, 1e308]), ([0, 1], [1e17, 1e17 + 16]), ([0, 1], [0.0, 5e-324]),
    ],
)  # fmt: skip
def test_values_of_any_size_are_drawn(x: list[float], y: list[float]):
    for axis in ("step", "relativeTime"):
        svg = RunPlot([PlottedCurve("a", "a", "loss", x, y, None)], ["loss"], axis).to_svg()
        assert "nan" not in svg
        assert "inf" not in svg
        ElementTree.fromstring(svg)


def test_without_matplotlib_a_notebook_shows_the_svg(monkeypatch: pytest.MonkeyPatch):
    plot = RunPlot([PlottedCurve("a", "a", "loss", [0.0, 1.0], [1.0, 2.0], None)], ["loss"], "time")
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert str(plot._repr_html_()).startswith("<svg")
    assert plot._repr_png_() is None
    assert "01-01 00:00" in str(plot._repr_html_())


def test_with_matplotlib_a_notebook_shows_its_figure():
    pytest.importorskip("matplotlib")
    curves = [PlottedCurve("a", "a", "loss", [0.0, 1.0], [1.0, 2.0], [1.0, 2.5])]
    plot = RunPlot(curves, ["loss", "acc"], "time")
    assert plot._repr_html_() is None
    assert plot._repr_png_()[:4] == b"\x89PNG"
    assert [panel.get_ylabel() for panel in plot.to_matplotlib().axes] == ["loss", "acc"]
