"""Why a message did not get through."""

from typing import Any

MOST_ANSWER = 500
"""Characters of a server's answer that are kept."""


class Unsent(Exception):
    """`code`: of a text. `lasting`: trying again changes nothing."""

    def __init__(self, code: str, *, answer: str = "", lasting: bool = False, **params: Any) -> None:
        super().__init__(code)
        self.code, self.answer, self.lasting, self.params = code, answer[:MOST_ANSWER], lasting, params
