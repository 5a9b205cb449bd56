"""Series as the API returns them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from apps.common.clock import now
from apps.common.errors import ApiError
from apps.telemetry import reader
from apps.telemetry.block_codec import Column
from fermi.telemetry.metrics import GPU, METRICS, RANK, parse_key

DEFAULT_METRICS = (
    *("cpu", "memory", "received", "sent"),
    *("gpu", "gpu_memory", "power", "temperature"),
    *("rank_cpu", "rank_memory"),
)
MIN_POINTS, DEFAULT_POINTS, MAX_POINTS = 10, 300, 2000
MAX_ANSWER_VALUES = 500_000
"""Of one answer: with more series, each has fewer points."""
DEFAULT_SPAN = timedelta(hours=1)


Mask = np.ndarray[Any, np.dtype[np.bool_]]


class SeriesTarget(NamedTuple):
    """What a subject's values belong to. `node` None: no single node. `ranks`: that have the node's GPUs, in order.
    `only`: kinds of values that count; empty: all. `during`: periods that count; None: always."""

    node: int | None
    ranks: range = range(0)
    only: Collection[str] = ()
    during: Sequence[tuple[datetime, datetime]] | None = None


class SeriesQuery(NamedTuple):
    """Period, metrics and number of points of a request."""

    begins: datetime
    ends: datetime
    metrics: Collection[str]
    points: int


def parse_query(
    query: Mapping[str, Any], *, since: datetime | None = None, until: datetime | None = None
) -> SeriesQuery:
    """Return the parsed query. `since`, `until`: lifetime of what is queried, outside of which there are no values.
    Raises ApiError 400."""
    ends = query.get("to") or until or now()
    begins = query.get("from") or since or ends - DEFAULT_SPAN
    if begins >= ends:
        raise ApiError(400, "TIMES_BACKWARDS", "to")
    lived = max(begins, since or begins), min(ends, until or ends)
    if lived[0] >= lived[1]:
        return SeriesQuery(begins, ends, (), query["points"])
    return SeriesQuery(*lived, query.get("metric") or DEFAULT_METRICS, query["points"])


def serialize_series(
    query: SeriesQuery,
    places: Mapping[str, SeriesTarget],
    is_included: Callable[[str, int | None, int | None], bool] = lambda *_: True,
    *,
    expected: int = 1,
) -> dict[str, Any]:
    """Return the series. `places`: targets by subject. `is_included`: whether values of a kind, node and rank are.
    `expected`: how many series a metric may have."""
    points = max(MIN_POINTS, min(query.points, MAX_ANSWER_VALUES // max(1, expected * len(query.metrics))))
    table = reader.read_series(list(places), query.metrics, query.begins.timestamp(), query.ends.timestamp(), points)
    found: list[dict[str, Any]] = []
    strange = {
        subject: _find_steps_outside(table, place.during)
        for subject, place in places.items()
        if place.during is not None
    }
    for (subject, key), series in table.columns.items():
        if subject in strange:
            _blank_steps(series, strange[subject])
            if np.isnan(series.values).all():
                continue
        if (known := parse_key(key)) is None:
            continue
        name, index = known
        place = places[subject]
        of = METRICS[name].subject
        rank = _find_rank(of, index, place)
        if (not place.only or of in place.only) and is_included(of, place.node, rank):
            found.append({
                "metric": name, "unit": METRICS[name].unit, "index": index, "node": place.node, "rank": rank,
                "values": _to_numbers(series.values), "most": None if series.most is None else _to_numbers(series.most),
            })  # fmt: skip
    order = {name: at for at, name in enumerate(METRICS)}
    found.sort(key=lambda one: (order[one["metric"]], one["node"] or 0, one["rank"] or 0, one["index"]))
    return {
        "from": _to_datetime(table.begins),
        "to": _to_datetime(table.begins + table.step * table.count),
        "stepSeconds": table.step,
        "emulated": bool(table.emulated),
        "series": found,
    }


def _find_steps_outside(table: reader.SeriesTable, periods: Sequence[tuple[datetime, datetime]]) -> Mask:
    """Return a mask of the steps that overlap none of the periods."""
    begins = table.begins + table.step * np.arange(table.count)
    found = np.ones(table.count, bool)
    for since, until in periods:
        found &= (begins + table.step <= since.timestamp()) | (begins >= until.timestamp())
    return found


def _blank_steps(series: reader.Series, steps: Mask) -> None:
    for column in (series.values, series.most):
        if column is not None:
            column[steps] = np.nan


def _find_rank(subject_kind: str, index: str, target: SeriesTarget) -> int | None:
    if subject_kind == RANK:
        return int(index) if index.isdecimal() else None
    if subject_kind == GPU and index.isdecimal() and int(index) < len(target.ranks):
        return target.ranks[int(index)]
    return None


def _to_numbers(column: Column) -> Sequence[float | None]:
    rounded = np.where(np.abs(column) < 1000, np.round(column.astype(np.float64), 2), np.round(column))
    return [None if value != value else value for value in rounded.tolist()]


def _to_datetime(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)
