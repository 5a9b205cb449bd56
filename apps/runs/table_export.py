"""The table of runs as a file: CSV while it is read, or Parquet."""

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from apps.accounts.models import User
from apps.common.clock import now
from apps.runs.search import MAX_BATCH, Search, search_tasks
from apps.runs.table import parse_columns, parse_search
from apps.runs.table_values import CellValue, load_values
from fermi.runs.fields import FIELDS, Field, FieldKind

MAX_ROWS, BATCH = 100_000, 1_000
FORMATS = ("csv", "parquet")
PARQUET = "application/vnd.apache.parquet"
_FIRST = ("id", "name")
_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""With which a spreadsheet begins a formula."""


class Export(NamedTuple):
    """A file in pieces."""

    pieces: Iterator[bytes]
    media_type: str
    name: str


def export_runs(user: User, query: Mapping[str, Any]) -> Export:
    """Return the runs that a query matches. Raises ApiError 400 as `table.list_runs` does."""
    asked = parse_columns(query.get("column", ()))
    columns = list({field.key: field for field in (*(FIELDS[name] for name in _FIRST), *asked)}.values())
    batches = _iterate_batches(parse_search(user, query), columns)
    name = f"runs-{now():%Y%m%d-%H%M%S}"
    if query["format"] == "parquet":
        pieces = _write_parquet(columns, batches)
        return Export(pieces, PARQUET, f"{name}.parquet")
    return Export(_write_csv(columns, batches), "text/csv; charset=utf-8", f"{name}.csv")


Batch = list[list[CellValue]]


def _iterate_batches(search: Search, columns: Sequence[Field]) -> Iterator[Batch]:
    """Yield rows of cells in the order of the table."""
    ids = islice(_iterate_ids(search), MAX_ROWS)
    while batch := list(islice(ids, BATCH)):
        values = load_values(batch, columns)
        yield [[values[key].get(field.key) for field in columns] for key in batch]


def _iterate_ids(search: Search) -> Iterator[str]:
    cursor: str | None = ""
    while cursor is not None:
        found = search_tasks(search, MAX_BATCH, cursor)
        yield from found.ids
        cursor = found.next_cursor


def _write_csv(columns: Sequence[Field], batches: Iterator[Batch]) -> Iterator[bytes]:
    header: Batch = [[field.key for field in columns]]
    for batch in chain([header], batches):
        out = io.StringIO()
        csv.writer(out).writerows([_format_cell(cell) for cell in row] for row in batch)
        yield out.getvalue().encode()


def _format_cell(cell: CellValue) -> str | float:
    """Return the cell for a spreadsheet, in which no text of a user may be a formula."""
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return cell.isoformat()
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_SIGNS) else cell


def _write_parquet(columns: Sequence[Field], batches: Iterator[Batch]) -> Iterator[bytes]:
    """Yield a Parquet file, a row group for each batch. A parameter is a column of texts, as one run may have a number
    where another has a text; the numbers of those that have one are in a second column."""
    import pyarrow
    import pyarrow.parquet

    kinds: dict[FieldKind, Any] = {
        FieldKind.NUMBER: pyarrow.float64(),
        FieldKind.DURATION: pyarrow.float64(),
        FieldKind.TIME: pyarrow.timestamp("us", tz="UTC"),
    }
    cells: list[tuple[str, Any, int, Callable[[CellValue], Any]]] = []
    for position, field in enumerate(columns):
        if field.kind is FieldKind.MIXED:
            cells.append((field.key, pyarrow.string(), position, _make_text))
            cells.append((f"{field.key} (number)", pyarrow.float64(), position, _make_number))
        else:
            kind = kinds.get(field.kind, pyarrow.string())
            cells.append((field.key, kind, position, _make_number if kind == pyarrow.float64() else _keep))
    schema = pyarrow.schema([(name, kind) for name, kind, _, _ in cells])
    sent = 0
    with TemporaryFile() as file:
        with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in batches:
                rows = [[make(row[position]) for row in batch] for _, _, position, make in cells]
                arrays = [pyarrow.array(row, kind) for row, (_, kind, _, _) in zip(rows, cells, strict=True)]
                writer.write_batch(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
                yield (piece := _read_behind(file, sent))
                sent += len(piece)
        yield _read_behind(file, sent)


def _read_behind(file: IO[bytes], sent: int) -> bytes:
    """Return what was written to a file behind its first `sent` bytes."""
    file.flush()
    return os.pread(file.fileno(), file.tell() - sent, sent)


def _make_text(cell: CellValue) -> str | None:
    return None if cell is None else str(cell)


def _make_number(cell: CellValue) -> float | None:
    return float(cell) if isinstance(cell, int | float) else None


def _keep(cell: CellValue) -> CellValue:
    return cell
