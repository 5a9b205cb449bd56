"""Lists that are fetched page by page while they are iterated: by cursors where the API has them, else by page
numbers."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from fermi.client.transport import Transport

Item = TypeVar("Item")

PAGE_SIZE = 200  # the largest the platform gives


class Listing(Generic[Item]):
    """A list on the platform. Each iteration fetches it anew; `first`, `page` and `total` fetch a part only."""

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
        """Return `{"items", "total", "page", "pageSize"}` as the API gives it; page numbers count from 1."""
        return self._page(page=number, pageSize=size)

    def behind(self, cursor: str, size: int = PAGE_SIZE) -> dict[str, Any]:
        """Return the page that begins at a cursor: `nextCursor` of the page before, for lists that have cursors
        (tasks)."""
        return self._page(cursor=cursor, pageSize=size)

    def _page(self, **params: Any) -> dict[str, Any]:
        return self._transport.call("GET", self._path, params={**self._filters, **params})

    def first(self, count: int) -> list[Item]:
        """Return at most `count` items."""
        return self.page(size=count)["items"] if count <= PAGE_SIZE else list(islice(self, count))

    @property
    def total(self) -> int:
        """Number of items. Of very many tasks it is a lower bound: `page()["totalIsExact"]` says so."""
        return self.page(size=1)["total"]
