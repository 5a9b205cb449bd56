"""Why code could not be brought."""

from typing import Any


class FetchError(Exception):
    """`retry`: another try may go well."""

    def __init__(self, code: str, *, retry: bool = False, **params: Any) -> None:
        super().__init__(f"{code}: {params}")
        self.code, self.params, self.retry = code, params, retry
