"""The table of runs: tasks that a query matches, with the values of columns."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal

from fermi.client.transport import Transport
from fermi.client.types import RunColumn, RunGroupList, RunItem

PAGE_SIZE = 200  # the largest the platform gives
EXPORT_SILENCE_SECONDS = 300.0
Archived = Literal["false", "true", "all"]


class RunListing:
    """Runs on the platform, fetched page by page. Each iteration fetches them anew."""

    def __init__(self, transport: Transport, params: Mapping[str, Any]) -> None:
        self._transport = transport
        self._params = params

    def __iter__(self) -> Iterator[RunItem]:
        cursor: str | None = ""
        while cursor is not None:
            page = self.page(PAGE_SIZE, cursor)
            yield from page["items"]
            cursor = page["nextCursor"]

    def page(self, size: int = PAGE_SIZE, cursor: str = "") -> dict[str, Any]:
        """Return one page as the API gives it. `searched` says whether reading it was enough; `nextCursor` is where the
        next one begins."""
        params = {**self._params, "pageSize": size, "cursor": cursor or None}
        return self._transport.call("GET", "/runs", params=params)

    def first(self, count: int) -> list[RunItem]:
        """Return at most `count` runs."""
        return self.page(count)["items"] if count <= PAGE_SIZE else list(islice(self, count))


class RunTable:
    """Finds runs by queries such as `status:failed lr>1e-4 metric.val_loss<3` (docs/run-queries.md)."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        query: str = "",
        *,
        columns: Sequence[str] = (),
        sort: str | None = None,
        project: str | None = None,
        archived: Archived = "false",
    ) -> RunListing:
        """Return the runs that a query matches, newest first unless `sort` names a field (`-` in front: from high to
        low). `columns`: fields of which each item has the `values`. Raise InvalidRequestError for an error in the
        query; its problem has the place."""
        return RunListing(self._transport, _build_params(query, columns, sort, project, archived))

    def columns(self, search: str = "") -> Sequence[RunColumn]:
        """Return the columns that there are: properties, and parameters and curves of the caller's newest tasks."""
        found: Sequence[RunColumn] = self._transport.call("GET", "/runs/columns", params={"search": search})["items"]
        return found

    def groups(
        self,
        by: Sequence[str],
        query: str = "",
        *,
        columns: Sequence[str] = (),
        project: str | None = None,
        archived: Archived = "false",
    ) -> RunGroupList:
        """Return the newest matching runs in groups of equal values of at most three fields, with figures of the
        numbers in the columns."""
        params = {**_build_params(query, columns, None, project, archived), "by": [*by]}
        return self._transport.call("GET", "/runs/groups", params=params)

    @contextmanager
    def export(
        self,
        query: str = "",
        *,
        columns: Sequence[str] = (),
        sort: str | None = None,
        project: str | None = None,
        archived: Archived = "false",
        format: Literal["csv", "parquet"] = "csv",  # noqa: A002 (as the API calls it)
    ) -> Iterator[Iterator[bytes]]:
        """Yield the content of a file with at most 100,000 runs, piece by piece, while the context is open."""
        params = {**_build_params(query, columns, sort, project, archived), "format": format}
        with self._transport.open("/runs/export", params=params, silence_s=EXPORT_SILENCE_SECONDS) as answer:
            yield answer.iter_bytes()


def _build_params(
    query: str, columns: Sequence[str], sort: str | None, project: str | None, archived: str
) -> dict[str, Any]:
    return {"query": query or None, "column": [*columns], "sort": sort, "project": project, "archived": archived}
