"""A run that is read: its curves as rows of a table, its configuration, its newest values, its files."""

import math
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fermi.client.files import Outputs
from fermi.client.transport import Transport
from fermi.client.types import FileItem

MAX_REQUESTS = 200
"""For one history: the platform reads the points of a long run in parts."""
MAX_METRICS, SUMMARY_METRICS = 20, 1000
"""Of one request; of a summary."""
FEW_POINTS = 10
TIME = "time"


class History(Sequence[dict[str, float | None]]):
    """Rows of a table: `{"step": 10.0, "loss": 2.3}`, one for each place on the axis, in its order. A metric without a
    value there is None."""

    def __init__(self, rows: Sequence[dict[str, float | None]], columns: Sequence[str]) -> None:
        """Keep the rows, each with all `columns`."""
        self._rows, self.columns = list(rows), list(columns)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return History(self._rows[index], self.columns) if isinstance(index, slice) else self._rows[index]

    def __iter__(self) -> Iterator[dict[str, float | None]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"History({len(self)} rows of {', '.join(self.columns)})"

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame` of float64; the axis `time` as moments in UTC. Raise ImportError
        where pandas is not installed."""
        pandas = import_module("pandas")
        frame = pandas.DataFrame(self._rows, columns=self.columns, dtype="float64")
        if self.columns[:1] == [TIME]:
            frame[TIME] = pandas.to_datetime(frame[TIME], unit="s", utc=True)
        return frame

    def to_polars(self) -> Any:
        """Return the rows as a `polars.DataFrame` of Float64; the axis `time` as moments in UTC. Raise ImportError
        where polars is not installed."""
        polars = import_module("polars")
        frame = polars.DataFrame(self._rows, schema=dict.fromkeys(self.columns, polars.Float64))
        if self.columns[:1] == [TIME]:
            moments = (polars.col(TIME) * 1e6).cast(polars.Int64).cast(polars.Datetime("us", "UTC"))
            frame = frame.with_columns(moments.alias(TIME))
        return frame


class Run:
    """One task as a run that is read: `fermi.run("task-…").history("loss")`."""

    def __init__(self, transport: Transport, task_id: str) -> None:
        self._transport, self.id = transport, task_id

    def metrics(self) -> list[str]:
        """Return the names of its curves, the training loss first."""
        answer = self._transport.call("GET", "/runs/comparison", params={"task": [self.id]})
        return [one["name"] for one in answer["metrics"]]

    def history(self, *names: str, axis: str = "step", points: int = 2000, smooth: float = 0.0) -> History:
        """Return these metrics, or all (at most 20) without names, with at most `points` values of each: where several
        points lie in one place, their mean. Steps that were done again after a restart are there once. `axis`: step,
        time, relativeTime, tokens, samples or gpuHours; `smooth`: weight of a moving average, 0 to below 1. Raise
        NotFoundError for a run that the caller may not see, FermiError for a metric that the platform refuses."""
        wanted = list(names) or self.metrics()[:MAX_METRICS]
        if not wanted:
            return History([], [axis])
        answer = read_series(self._transport, [self.id], wanted, axis, points, smooth)
        rows: dict[float, dict[str, float | None]] = {}
        for curve in answer["series"]:
            for place, value in zip(curve["x"], curve["smoothed"] or curve["y"], strict=True):
                rows.setdefault(place, {axis: place, **dict.fromkeys(wanted)})[curve["metric"]] = value
        return History([rows[place] for place in sorted(rows)], [axis, *wanted])

    @property
    def config(self) -> dict[str, Any]:
        """What its script was configured with, by name: numbers and booleans as such, all else as text."""
        task = self._transport.call("GET", f"/training-tasks/{quote(self.id, safe='')}")
        return {one["name"]: parse_value(one["value"]) for one in task["parameters"]}

    @property
    def summary(self) -> dict[str, float]:
        """The newest value of each of its curves, by name; at most SUMMARY_METRICS."""
        names, found = self.metrics()[:SUMMARY_METRICS], dict[str, float]()
        for begin in range(0, len(names), MAX_METRICS):
            some = names[begin : begin + MAX_METRICS]
            answer = read_series(self._transport, [self.id], some, "step", FEW_POINTS, 0.0)
            found |= {curve["metric"]: curve["last"] for curve in answer["series"] if curve["last"] is not None}
        return {name: found[name] for name in names if name in found}

    @property
    def files(self) -> list[FileItem]:
        """What it has written to its outputs, in all folders: each with its `path` and `sizeBytes`."""
        return [*Outputs(self._transport).tree(self.id)]

    def download(self, path: str, into: str | Path = ".") -> Path:
        """Download a file of its outputs, into a folder or to a file, and return where it is. Raise NotFoundError."""
        target = Path(into)
        if target.is_dir():
            target = target / path.rpartition("/")[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        with part.open("wb") as file:
            for piece in Outputs(self._transport).read(self.id, path):
                file.write(piece)
        part.replace(target)
        return target


def read_series(
    transport: Transport, tasks: Sequence[str], metrics: Sequence[str], axis: str, points: int, smooth: float
) -> Any:
    """Return the answer of `GET /runs/series` once all points are read that are stored, or after MAX_REQUESTS."""
    params = {"task": tasks, "metric": metrics, "axis": axis, "points": points, "smooth": smooth or None}
    for _ in range(MAX_REQUESTS):
        answer = transport.call("GET", "/runs/series", params=params)
        if answer["complete"]:
            break
    return answer


def parse_value(text: str) -> Any:
    """Return a parameter's value: the boolean, null or number that a text is, else the text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float) if "_" not in text else ():
        try:
            found = kind(text)
        except ValueError:
            continue
        return found if math.isfinite(found) else text
    return text
