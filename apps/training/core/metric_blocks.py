"""Copies the points of tasks into packed columns, from which many long curves are read at once.

    MetricPoint: one JSON object a row ──update_blocks──▶ MetricBlock: one name, up to BLOCK_POINTS points a row

Rows are the truth, and blocks follow them: whoever reads curves first copies what is new, behind the newest point that
was copied (`MetricBlockState.until`), once there are MIN_NEW_ROWS of it or the task has ended. Fewer are read as rows.
A periodic job copies most of it ahead (`copy_points`), so that they seldom have much to copy.

Blocks equal the stored points. Thinning deletes only the newest point of a kind of lines (`logs.ingest`), so the newest
one of each kind, of at most MAX_HELD kinds, waits (`MetricBlockState.held`) until another one of it is there. Where
stored points are changed all blocks are thrown away in the same transaction (`discard_blocks`). Of two that copy at the
same time, one finds the state changed and drops what it has.

A block's points are in the order of their steps, each step once: the value that was stored last. `cells` has
CELL_POINTS points in one; `data` has the points: steps and microseconds as differences, deflated, and the values as
they are, because deflating noise only costs time.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
from django.db import connection, transaction
from django.db.models import F, Min

from apps.training.models import MetricBlock, MetricBlockState
from fermi.metrics.downsampling import Cells, Floats, Integers, fold_points

BLOCK_POINTS, CELL_POINTS = 8192, 32
MIN_NEW_ROWS = 500
BATCH_ROWS = 20_000
"""Rows that are read and stored in one transaction."""
MAX_NAMES = 1000
"""Of a task: further names (each as a pattern prints it) have no curves in comparisons."""
MAX_HELD = 1000
MAX_IDS = 500  # in one statement
_LENGTHS = struct.Struct("<III")
_CELL_INTEGERS, _CELL_FLOATS = ("first_steps", "last_steps", "counts"), (
    "first_times", "last_times", "sums", "lows", "highs"
)  # fmt: skip


class SeriesKey(NamedTuple):
    """Whose points they are; `name` as it was printed."""

    attempt: int
    rank: int
    source: str
    pattern: str
    name: str


@dataclass(frozen=True, slots=True)
class Points:
    """Points in the order of their steps, each step once; values that were not finite are NaN. Times in unix
    seconds."""

    steps: Integers
    times: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def select(self, chosen: Any) -> "Points":
        """Return the points at these indexes, or where this mask is true."""
        return Points(self.steps[chosen], self.times[chosen], self.values[chosen])


class BlockUpdate(NamedTuple):
    """What was done for a task. `rest`: the points that are in no block; `is_complete`: the blocks and the rest are all
    points."""

    rest: Mapping[SeriesKey, Points]
    is_complete: bool


class _Row(NamedTuple):
    id: int
    attempt: int
    rank: int
    step: int
    at: Any  # SQLite: text; PostgreSQL: unix seconds
    values: str
    source: str
    pattern: str


def update_blocks(tasks: Mapping[str, bool], *, max_rows: int) -> dict[str, BlockUpdate]:
    """Copy new points of tasks into blocks, and return the rest of each. `tasks`: by id, whether it has ended. Reads
    at most `max_rows` rows and one batch. Where nothing is new, the number of statements does not depend on that of
    the tasks."""
    states = _load_states(tasks)
    counts = _count_new_rows(list(tasks), MIN_NEW_ROWS)
    found, unread = dict[str, BlockUpdate](), set[str]()
    for task, has_ended in tasks.items():
        least = 1 if has_ended else MIN_NEW_ROWS
        if counts[task] >= least:
            copied, states[task], counts[task] = _copy_new_rows(states[task], counts[task], least, max_rows)
            max_rows -= copied
        if counts[task] >= least:
            unread.add(task)
    held = {pk: task for task in tasks if task not in unread for pk in states[task].held}
    rest: dict[str, list[_Row]] = {}
    for row in _read_held_rows(sorted(held)):
        rest.setdefault(held[row.id], []).append(row)
    for task, count in counts.items():
        if count and task not in unread:
            rest.setdefault(task, []).extend(_read_new_rows(task, states[task].until, BATCH_ROWS))
    for task in tasks:
        found[task] = BlockUpdate(collect_points(rest.get(task, ())), task not in unread)
    return found


def copy_points(tasks: Mapping[str, bool], *, min_rows: int, max_rows: int) -> None:
    """Copy new points of tasks into blocks: of one that has ended (the value by its id) all, else where there are at
    least `min_rows` of them. At most `max_rows` rows and one batch of each task."""
    states, counts = _load_states(tasks), _count_new_rows(list(tasks), min_rows)
    for task, has_ended in tasks.items():
        least = 1 if has_ended else min_rows
        if counts[task] >= least:
            _copy_new_rows(states[task], counts[task], least, max_rows)


def _copy_new_rows(state: MetricBlockState, count: int, least: int, budget: int) -> tuple[int, MetricBlockState, int]:
    """Copy a task's new rows while there are `least` of them, at most `budget` and one batch. Return how many were
    read, the state, and how many there are still, counted up to `least` or more."""
    task, copied = state.task_id, 0
    while count >= least and copied < budget:
        rows = _read_new_rows(task, state.until, BATCH_ROWS)
        copied += len(rows)
        _copy_rows(task, state, [*_read_held_rows(state.held), *rows])
        state = _load_states([task])[task]
        count = _count_new_rows([task], max(least, MIN_NEW_ROWS))[task]
    return copied, state, count


def discard_blocks(task_id: str) -> None:
    """Throw the task's blocks away, in the transaction that changes stored points: they are made again when they are
    read. A copy that is under way notices it."""
    # The state first: a copy that is being stored has its row, and what it has stored is deleted then.
    changed = MetricBlockState.objects.filter(task=task_id).update(version=F("version") + 1, until=0, held=[])
    if not changed:  # whoever copies for the first time waits for this row, and reads the changed points
        MetricBlockState.objects.update_or_create(
            task_id=task_id, defaults={"version": F("version") + 1, "until": 0, "held": []},
            create_defaults={"version": 1},
        )  # fmt: skip
    MetricBlock.objects.filter(task=task_id).delete()


def collect_points(rows: Iterable[_Row]) -> dict[SeriesKey, Points]:
    """Return the points of rows by series."""
    rows = list(rows)
    if not rows:
        return {}
    values = orjson.loads("[" + ",".join([row.values for row in rows]) + "]")
    steps = np.array([row.step for row in rows], np.int64)
    times = _read_times([row.at for row in rows])
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for at, (row, own) in enumerate(zip(rows, values, strict=True)):
        kinds.setdefault((row.attempt, row.rank, row.source, row.pattern, *own), []).append(at)
    found: dict[SeriesKey, list[tuple[Integers, Floats]]] = {}
    for (attempt, rank, source, pattern, *names), places in kinds.items():
        index = np.array(places, np.int64)
        for name in names:
            column = np.array([values[at][name] for at in places], np.float64)
            found.setdefault(SeriesKey(attempt, rank, source, pattern, name), []).append((index, column))
    return {key: _join_parts(parts, steps, times) for key, parts in found.items()}


def sort_points(points: Points) -> Points:
    """Return the points in the order of their steps, each step once: of equal steps the last one."""
    steps = points.steps
    if not np.any(steps[1:] <= steps[:-1]):
        return points
    order = np.argsort(steps, kind="stable")
    ordered = steps[order]
    return points.select(order[np.append(ordered[1:] != ordered[:-1], True)])


def unpack_points(data: bytes | memoryview) -> Points:
    """Return the points of a block."""
    view = memoryview(data)
    count, steps, times = _LENGTHS.unpack_from(view)
    at = _LENGTHS.size
    columns = []
    for length in (steps, times):
        differences = np.frombuffer(zlib.decompress(view[at : at + length]), "<i8")
        columns.append(np.cumsum(differences, dtype=np.int64))
        at += length
    return Points(columns[0], columns[1] / 1e6, np.frombuffer(view, "<f8", count, at))


def unpack_cells(data: bytes | memoryview) -> Cells:
    """Return the cells of a block."""
    view = memoryview(data)
    count = len(view) // (8 * (len(_CELL_INTEGERS) + len(_CELL_FLOATS)))
    integers = np.frombuffer(view, "<i8", count * len(_CELL_INTEGERS)).reshape(len(_CELL_INTEGERS), count)
    floats = np.frombuffer(view, "<f8", offset=integers.nbytes).reshape(len(_CELL_FLOATS), count)
    return Cells(**dict(zip(_CELL_INTEGERS, integers, strict=True)), **dict(zip(_CELL_FLOATS, floats, strict=True)))


def _pack_points(points: Points) -> bytes:
    times = np.round(points.times * 1e6).astype("<i8")
    columns = [zlib.compress(np.diff(column, prepend=0).astype("<i8").tobytes(), 1) for column in (points.steps, times)]
    header = _LENGTHS.pack(len(points), *map(len, columns))
    return b"".join((header, *columns, points.values.astype("<f8").tobytes()))


def _pack_cells(cells: Cells) -> bytes:
    integers = [getattr(cells, name).astype("<i8").tobytes() for name in _CELL_INTEGERS]
    return b"".join((*integers, *(getattr(cells, name).astype("<f8").tobytes() for name in _CELL_FLOATS)))


def _load_states(tasks: Iterable[str]) -> dict[str, MetricBlockState]:
    """Return the states of tasks; those that have none get one."""
    ids = list(tasks)
    found = {state.task_id: state for state in MetricBlockState.objects.filter(task__in=ids)}
    if missing := [MetricBlockState(task_id=task) for task in ids if task not in found]:
        MetricBlockState.objects.bulk_create(missing, ignore_conflicts=True)
        rows = MetricBlockState.objects.filter(task__in=[state.task_id for state in missing])
        found |= {state.task_id: state for state in rows}
    return found


def _count_new_rows(tasks: Sequence[str], limit: int) -> dict[str, int]:
    """Return how many rows of each task are not copied, up to `limit`, in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state.task_id, (SELECT COUNT(*) FROM (SELECT 1 FROM training_metricpoint AS point "
            "WHERE point.task_id = state.task_id AND point.id > state.until LIMIT %s) AS new) "
            f"FROM training_metricblockstate AS state WHERE state.task_id IN ({', '.join(['%s'] * len(tasks))})",
            [limit, *tasks],
        )
        return dict(cursor.fetchall())


def _read_new_rows(task_id: str, after: int, limit: int) -> list[_Row]:
    """Return rows with a higher id than `after`, oldest first. Not through the ORM, whose conversion of dates and JSON
    takes longer than all else."""
    return _fetch_rows("task_id = %s AND id > %s ORDER BY id LIMIT %s", [task_id, after, limit])


def _read_held_rows(ids: Sequence[int]) -> list[_Row]:
    """Return those of the rows that are still there, oldest first."""
    found: list[_Row] = []
    for at in range(0, len(ids), MAX_IDS):
        part = list(ids[at : at + MAX_IDS])
        found += _fetch_rows(f"id IN ({', '.join(['%s'] * len(part))}) ORDER BY id", part)
    return found


def _fetch_rows(condition: str, params: Sequence[Any]) -> list[_Row]:
    quote = connection.ops.quote_name
    is_sqlite = connection.vendor == "sqlite"
    at = "CAST(at AS TEXT)" if is_sqlite else "EXTRACT(EPOCH FROM at)::float8"
    values = quote("values") if is_sqlite else f"{quote('values')}::text"
    columns = f"id, attempt, rank, step, {at}, {values}, source, pattern"
    with connection.cursor() as cursor:
        # the condition is one of two texts above, with places for its parameters
        cursor.execute(f"SELECT {columns} FROM training_metricpoint WHERE {condition}", params)
        return list(map(_Row._make, cursor.fetchall()))


def _read_times(moments: Sequence[Any]) -> Floats:
    """Return moments in unix seconds."""
    if isinstance(moments[0], str):
        return np.array(moments, "datetime64[us]").astype(np.int64) / 1e6
    return np.array(moments, np.float64)


def _join_parts(parts: Sequence[tuple[Integers, Floats]], steps: Integers, times: Floats) -> Points:
    """Return one series of the rows at these places, in the order in which they were stored."""
    if len(parts) == 1:
        index, values = parts[0]
    else:
        index = np.concatenate([part[0] for part in parts])
        values = np.concatenate([part[1] for part in parts])
        order = np.argsort(index, kind="stable")
        index, values = index[order], values[order]
    return sort_points(Points(steps[index], times[index], values))


def _copy_rows(task_id: str, state: MetricBlockState, rows: list[_Row]) -> None:
    """Copy rows into blocks, those of the lowest ranks, and hold the newest of each kind; nothing where another process
    was faster. `rows` are those that were held, then the new ones."""
    ranks = _load_ranks(task_id)
    parsed = orjson.loads("[" + ",".join([row.values for row in rows]) + "]")
    for row, values in zip(rows, parsed, strict=True):
        for name in values:
            one = (row.source, row.pattern, name)
            if one in ranks or len(ranks) < MAX_NAMES:
                ranks[one] = min(row.rank, ranks.get(one, row.rank))
    newest: dict[tuple[Any, ...], int] = {}
    for row, values in zip(rows, parsed, strict=True):
        if any(row.rank <= ranks.get((row.source, row.pattern, name), -1) for name in values):
            newest[row.attempt, row.rank, row.source, row.pattern, *values] = row.id
    held = sorted(newest.values())[-MAX_HELD:]
    waiting = set(held)
    found = collect_points(row for row in rows if row.id not in waiting)
    series = {key: points for key, points in found.items() if ranks.get(key[2:]) == key.rank}
    with transaction.atomic():
        same = MetricBlockState.objects.filter(task=task_id, until=state.until, version=state.version)
        if same.update(until=max(row.id for row in rows), held=held):
            _store_series(task_id, series)


def _load_ranks(task_id: str) -> dict[tuple[str, str, str], int]:
    """Return the lowest rank of each source, pattern and name that has blocks."""
    columns = ("source", "pattern", "name")
    rows = MetricBlock.objects.filter(task=task_id).values_list(*columns).order_by().annotate(lowest=Min("rank"))
    return {(source, pattern, name): lowest for source, pattern, name, lowest in rows}


def _store_series(task_id: str, series: Mapping[SeriesKey, Points]) -> None:
    """Append points to blocks: to the last one of each series while it is not full."""
    last: dict[SeriesKey, tuple[int, int, int]] = {}
    columns = ("attempt", "rank", "source", "pattern", "name", "id", "number", "count")
    for *key, pk, number, count in MetricBlock.objects.filter(task=task_id).order_by("number").values_list(*columns):
        last[SeriesKey(*key)] = (pk, number, count)
    lowest = {key[2:]: key.rank for key in series}
    for source, pattern, name in {key[2:] for key in last if key.rank > lowest.get(key[2:], key.rank)}:
        above = MetricBlock.objects.filter(task=task_id, source=source, pattern=pattern, name=name)
        above.filter(rank__gt=lowest[source, pattern, name]).delete()
    open_blocks = {key: last[key][0] for key in series if key in last and last[key][2] < BLOCK_POINTS}
    packed = dict(MetricBlock.objects.filter(pk__in=open_blocks.values()).values_list("pk", "data"))
    rows = []
    for key, points in series.items():
        pk, number, _ = last.get(key, (0, -1, 0))
        if key in open_blocks:
            before = unpack_points(packed[pk])
            points = sort_points(
                Points(
                    np.concatenate([before.steps, points.steps]),
                    np.concatenate([before.times, points.times]),
                    np.concatenate([before.values, points.values]),
                )
            )
        else:
            number += 1
        for at in range(0, len(points), BLOCK_POINTS):
            part = points.select(slice(at, at + BLOCK_POINTS))
            rows.append(_build_block(task_id, key, number + at // BLOCK_POINTS, part))
    MetricBlock.objects.filter(pk__in=open_blocks.values()).delete()
    MetricBlock.objects.bulk_create(rows, batch_size=50)


def _build_block(task_id: str, key: SeriesKey, number: int, points: Points) -> MetricBlock:
    known = np.flatnonzero(np.isfinite(points.values))
    newest = known[-1] if len(known) else None
    return MetricBlock(
        task_id=task_id,
        **key._asdict(),
        number=number,
        count=len(points),
        not_finite=len(points) - len(known),
        first_step=int(points.steps[0]),
        last_step=int(points.steps[-1]),
        first_time=float(points.times.min()),
        last_time=float(points.times.max()),
        last=None if newest is None else float(points.values[newest]),
        last_value_step=None if newest is None else int(points.steps[newest]),
        cells=_pack_cells(fold_points(points.steps, points.times, points.values, CELL_POINTS)),
        data=_pack_points(points),
    )
