"""Errors of fetching code."""

from typing import Any


class FetchError(Exception):
    """Code could not be fetched. `retry`: another try may succeed."""

    def __init__(self, code: str, *, retry: bool = False, **params: Any) -> None:
        super().__init__(f"{code}: {params}")
        self.code, self.params, self.retry = code, params, retry
