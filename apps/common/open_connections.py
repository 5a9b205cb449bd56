"""Counts open connections of each user in this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from apps.common.errors import ApiError


class ConnectionLimit:
    """Limit of the open connections of one kind for each user; beyond it ApiError 429 with `code` is raised. Used from
    one event loop."""

    def __init__(self, max_per_user: int, code: str) -> None:
        self.most, self._code = max_per_user, code
        self._count: Counter[int] = Counter()

    def refuse_more(self, person: int) -> None:
        """Raise ApiError if the user has as many as allowed."""
        if self._count[person] >= self.most:
            raise ApiError(429, self._code, limit=self.most)

    @contextmanager
    def one(self, person: int) -> Iterator[None]:
        """Count one more while the block runs. Raises ApiError."""
        self.refuse_more(person)
        self._count[person] += 1
        try:
            yield
        finally:
            self._count[person] -= 1
            if not self._count[person]:
                del self._count[person]
