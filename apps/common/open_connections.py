"""What each person has open, in this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from apps.common.errors import ApiError


class Open:
    """At most `most` of one kind for each person; what is more is refused with `code`. Used from one event loop."""

    def __init__(self, most: int, code: str) -> None:
        self.most, self._code = most, code
        self._count: Counter[int] = Counter()

    def refuse_more(self, person: int) -> None:
        """Raises ApiError where a person has as many as may be."""
        if self._count[person] >= self.most:
            raise ApiError(429, self._code, limit=self.most)

    @contextmanager
    def one(self, person: int) -> Iterator[None]:
        """One more of them. Raises ApiError."""
        self.refuse_more(person)
        self._count[person] += 1
        try:
            yield
        finally:
            self._count[person] -= 1
            if not self._count[person]:
                del self._count[person]
