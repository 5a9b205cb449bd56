"""A list on the platform, fetched page by page while it is walked: by cursors where it has them, else by numbers."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from fermi.client.transport import Transport

Item = TypeVar("Item")

PAGE_SIZE = 200  # the largest the platform gives


class Listing(Generic[Item]):
    """Iterate over it (each time anew), or ask for its beginning or its length only."""

    def __init__(self, transport: Transport, path: str, filters: Mapping[str, Any]) -> None:
        self._transport = transport
        self._path = path
        self._filters = filters

    def __iter__(self) -> Iterator[Item]:
        page, number, seen = self.page(), 1, 0
        while True:
            yield from page["items"]
            seen += len(page["items"])
            if cursor := page.get("nextCursor"):
                page = self.behind(cursor)
            elif page.get("page", number) is not None and page["items"] and seen < page["total"]:
                number += 1
                page = self.page(number)
            else:
                return

    def page(self, number: int = 1, size: int = PAGE_SIZE) -> dict[str, Any]:
        """`{"items", "total", "page", "pageSize"}` as the platform gives it; numbers count from 1."""
        return self._page(page=number, pageSize=size)

    def behind(self, cursor: str, size: int = PAGE_SIZE) -> dict[str, Any]:
        """The page that begins at a cursor: `nextCursor` of the page before, of a list that has such (of tasks)."""
        return self._page(cursor=cursor, pageSize=size)

    def _page(self, **params: Any) -> dict[str, Any]:
        return self._transport.call("GET", self._path, params={**self._filters, **params})

    def first(self, count: int) -> list[Item]:
        """At most `count` items."""
        return self.page(size=count)["items"] if count <= PAGE_SIZE else list(islice(self, count))

    @property
    def total(self) -> int:
        """How many there are. Of very many tasks, as many as the platform counts: `page()["totalIsExact"]` tells."""
        return self.page(size=1)["total"]
