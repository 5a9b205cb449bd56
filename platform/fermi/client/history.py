"""Curves of a run, as rows of a table."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from fermi.client.transport import Transport

MAX_REQUESTS = 200
"""For one history: the platform reads the points of a long run in parts."""


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
        """Return the rows as a `pandas.DataFrame`. Raise ImportError where pandas is not installed."""
        return import_module("pandas").DataFrame(self._rows, columns=self.columns)

    def to_polars(self) -> Any:
        """Return the rows as a `polars.DataFrame`. Raise ImportError where polars is not installed."""
        polars = import_module("polars")
        return polars.DataFrame(self._rows, schema=dict.fromkeys(self.columns, polars.Float64))


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
        wanted = list(names) or self.metrics()[:20]
        if not wanted:
            return History([], [axis])
        params = {"task": [self.id], "metric": wanted, "axis": axis, "points": points, "smooth": smooth or None}
        for _ in range(MAX_REQUESTS):
            answer = self._transport.call("GET", "/runs/series", params=params)
            if answer["complete"]:
                break
        rows: dict[float, dict[str, float | None]] = {}
        for curve in answer["series"]:
            for place, value in zip(curve["x"], curve["smoothed"] or curve["y"], strict=True):
                rows.setdefault(place, {axis: place, **dict.fromkeys(wanted)})[curve["metric"]] = value
        return History([rows[place] for place in sorted(rows)], [axis, *wanted])
