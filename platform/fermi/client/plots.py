"""Curves of runs as a picture in a notebook: by matplotlib where it is installed, else as an SVG."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fermi.client.errors import FermiError, NotFoundError
from fermi.client.history import read_series
from fermi.client.transport import Transport

MAX_RUNS, MAX_METRICS, POINTS = 50, 20, 500
COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
"""Told apart also by people who do not see all colours."""
MAX_VALUE = 1e300
WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE_HEIGHT = 640, 240, 72, 16, 28, 40, 18
LABELS = {
    "step": "step", "time": "time (UTC)", "relativeTime": "seconds since the start", "tokens": "tokens",
    "samples": "samples", "gpuHours": "GPU-hours",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlottedCurve:
    """A metric of a run: `y` at each place `x` of the axis; `raw`: before smoothing, None without."""

    task_id: str
    label: str
    metric: str
    x: Sequence[float]
    y: Sequence[float]
    raw: Sequence[float] | None


class RunPlot:
    """Curves of runs, one panel for each metric. The last expression of a notebook's cell is shown as a picture."""

    def __init__(self, curves: Sequence[PlottedCurve], metrics: Sequence[str], axis: str) -> None:
        """Keep what is drawn."""
        self.curves, self.metrics, self.axis = list(curves), list(metrics), axis

    def __repr__(self) -> str:
        runs = len({curve.task_id for curve in self.curves})
        return f"RunPlot({', '.join(self.metrics)} of {runs} runs by {self.axis})"

    def _repr_html_(self) -> str | None:
        return None if find_spec("matplotlib") else self.to_svg()

    def _repr_png_(self) -> bytes | None:
        if not find_spec("matplotlib"):
            return None
        buffer = io.BytesIO()
        self.to_matplotlib().savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()

    def to_matplotlib(self) -> Any:
        """Return a `matplotlib.figure.Figure`, to be changed or saved. Raise ImportError where matplotlib is not
        installed."""
        figure = import_module("matplotlib.figure").Figure(
            figsize=(WIDTH / 90, PANEL_HEIGHT / 90 * len(self.metrics)), layout="constrained"
        )
        panels = figure.subplots(len(self.metrics), 1, sharex=True, squeeze=False)[:, 0]
        colors = self._choose_colors()
        for panel, metric in zip(panels, self.metrics, strict=True):
            for curve in self._list_curves(metric):
                places: list[Any] = [_to_datetime(x) for x in curve.x] if self.axis == "time" else list(curve.x)
                color = colors[curve.task_id]
                marker = "o" if len(places) == 1 else None
                if curve.raw is not None:
                    panel.plot(places, curve.raw, color=color, alpha=0.25, linewidth=1)
                panel.plot(places, curve.y, color=color, linewidth=1.5, label=curve.label, marker=marker)
            panel.set_ylabel(metric)
            panel.grid(alpha=0.25)
            panel.spines[["top", "right"]].set_visible(False)
        panels[-1].set_xlabel(LABELS.get(self.axis, self.axis))
        handles = {label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels())}  # noqa: B905
        if handles:
            figure.legend(handles.values(), handles.keys(), loc="outside upper left", frameon=False, fontsize="small")
        return figure

    def to_svg(self) -> str:
        """Return the picture as an SVG document, without any script or address in it."""
        colors, labels = self._choose_colors(), {curve.task_id: curve.label for curve in self.curves}
        legend = LINE_HEIGHT * len(labels) + 8
        height = legend + PANEL_HEIGHT * len(self.metrics)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        ]
        for row, (task, label) in enumerate(labels.items()):
            y = LINE_HEIGHT * row + 14
            parts.append(f'<rect x="{LEFT}" y="{y - 6}" width="18" height="3" fill="{colors[task]}"/>')
            parts.append(f'<text x="{LEFT + 26}" y="{y}">{escape(label)}</text>')
        for row, metric in enumerate(self.metrics):
            parts += self._draw_panel(metric, legend + row * PANEL_HEIGHT, colors)
        return "".join([*parts, "</svg>"])

    def _draw_panel(self, metric: str, top: float, colors: dict[str, str]) -> list[str]:
        curves = self._list_curves(metric)
        across = _Scale([x for curve in curves for x in curve.x], LEFT, WIDTH - RIGHT)
        values = [y for curve in curves for y in (*curve.y, *(curve.raw or ()))]
        upward = _Scale(values, top + PANEL_HEIGHT - BOTTOM, top + TOP)
        parts = [f'<text x="{LEFT}" y="{top + 18:g}" font-weight="600">{escape(metric)}</text>']
        for value in upward.ticks:
            y = upward.place(value)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
                'stroke-opacity="0.15"/>'
            )
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_format(value)}</text>')
        for value in across.ticks:
            x, text = across.place(value), self._format_place(value)
            parts.append(
                f'<text x="{x:.1f}" y="{top + PANEL_HEIGHT - BOTTOM + 16:g}" text-anchor="middle">{escape(text)}</text>'
            )
        caption = LABELS.get(self.axis, self.axis)
        parts.append(
            f'<text x="{WIDTH - RIGHT}" y="{top + PANEL_HEIGHT - 6:g}" text-anchor="end">{escape(caption)}</text>'
        )
        for curve in curves:
            for ys, style in ((curve.raw, 'stroke-opacity="0.25"'), (curve.y, 'stroke-width="1.5"')):
                if ys is not None:
                    parts.append(_draw_line(across, upward, curve.x, ys, f'stroke="{colors[curve.task_id]}" {style}'))
        return parts

    def _format_place(self, value: float) -> str:
        return _to_datetime(value).strftime("%m-%d %H:%M") if self.axis == "time" else _format(value)

    def _list_curves(self, metric: str) -> list[PlottedCurve]:
        return [curve for curve in self.curves if curve.metric == metric]

    def _choose_colors(self) -> dict[str, str]:
        tasks = dict.fromkeys(curve.task_id for curve in self.curves)
        return {task: COLORS[number % len(COLORS)] for number, task in enumerate(tasks)}


class _Scale:
    """Places finite values between two coordinates, with about five round numbers on the way."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        finite = [_limit(value) for value in values if math.isfinite(value)]
        self.low, self.high = min(finite, default=0.0), max(finite, default=1.0)
        if self.high <= self.low:
            margin = abs(self.low) * 0.05 or 0.5
            self.low, self.high = self.low - margin, self.high + margin
        self._begin, self._end = begin, end

    def place(self, value: float) -> float:
        return self._begin + (_limit(value) - self.low) / (self.high - self.low) * (self._end - self._begin)

    @property
    def ticks(self) -> list[float]:
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
        step = next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, min(first + 12, math.floor(self.high / step) + 1))]


def _limit(value: float) -> float:
    """Return the value, or the nearest one whose differences are finite."""
    return max(-MAX_VALUE, min(MAX_VALUE, value))


def _draw_line(across: _Scale, upward: _Scale, xs: Sequence[float], ys: Sequence[float], style: str) -> str:
    places = [
        (across.place(x), upward.place(y)) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)
    ]
    if len(places) == 1:
        return f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="2.5" fill="none" {style}/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline fill="none" stroke-linejoin="round" {style} points="{points}"/>'


def _format(value: float) -> str:
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.3g}"
    return f"{value:,.6g}"


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def plot_runs(
    transport: Transport, tasks: Sequence[str], metrics: Sequence[str], axis: str, smooth: float, points: int
) -> RunPlot:
    """Return the curves of these tasks. Raise ValueError for a wrong number of tasks or metrics, NotFoundError for a
    task that the caller may not see, FermiError for a metric that no task has."""
    tasks, metrics = list(dict.fromkeys(tasks)), list(dict.fromkeys(metrics))
    if not 0 < len(tasks) <= MAX_RUNS:
        raise ValueError(f"{len(tasks)} runs cannot be plotted: name 1 to {MAX_RUNS} tasks")
    if not 0 < len(metrics) <= MAX_METRICS:
        raise ValueError(f"{len(metrics)} metrics cannot be plotted: name 1 to {MAX_METRICS}")
    known = _describe_runs(transport, tasks)
    names = [one["name"] for one in known["metrics"]] + list(known["machine"])
    for metric in metrics:
        if metric not in names:
            listed = ", ".join(names[:20]) or "none"
            raise FermiError(f"none of the runs has a curve {metric!r}; there are: {listed}", code="METRIC_UNKNOWN")
    labels = {one["taskId"]: one["taskName"] for one in known["runs"]}
    if len({*labels.values()}) < len(labels):
        labels = {task: f"{name} ({task})" for task, name in labels.items()}
    found = read_series(transport, tasks, metrics, axis, points, smooth)
    curves = [
        PlottedCurve(
            one["taskId"], labels[one["taskId"]], one["metric"], one["x"], one["smoothed"] or one["y"],
            one["y"] if one["smoothed"] else None,
        )
        for one in found["series"]
    ]  # fmt: skip
    return RunPlot(curves, metrics, axis)


def _describe_runs(transport: Transport, tasks: Sequence[str]) -> Any:
    try:
        return transport.call("GET", "/runs/comparison", params={"task": tasks})
    except NotFoundError:
        for task in tasks:
            try:
                transport.call("GET", "/runs/comparison", params={"task": [task]})
            except NotFoundError as error:
                message = f"there is no run {task!r} that you may see"
                raise NotFoundError(message, code=error.code, status=error.status) from error
        raise
