"""Errors of sending messages."""

from typing import Any

MAX_ANSWER_LENGTH = 500
"""Characters of a server's answer that are kept."""


class DeliveryError(Exception):
    """A message was not delivered. `code`: of a text. `lasting`: another try would fail as well."""

    def __init__(self, code: str, *, answer: str = "", lasting: bool = False, **params: Any) -> None:
        super().__init__(code)
        self.code, self.answer, self.lasting, self.params = code, answer[:MAX_ANSWER_LENGTH], lasting, params
