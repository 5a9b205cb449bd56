"""A list on the platform, fetched page by page while it is walked."""

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
        number, seen = 1, 0
        while True:
            page = self.page(number)
            yield from page["items"]
            seen += len(page["items"])
            if not page["items"] or seen >= page["total"]:
                return
            number += 1

    def page(self, number: int = 1, size: int = PAGE_SIZE) -> dict[str, Any]:
        """`{"items", "total", "page", "pageSize"}` as the platform gives it; numbers count from 1."""
        params = {**self._filters, "page": number, "pageSize": size}
        return self._transport.call("GET", self._path, params=params)

    def first(self, count: int) -> list[Item]:
        """At most `count` items."""
        return self.page(size=count)["items"] if count <= PAGE_SIZE else list(islice(self, count))

    @property
    def total(self) -> int:
        return self.page(size=1)["total"]
