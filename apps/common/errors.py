"""What services raise when a request cannot be served; the exception handler turns it into the error envelope."""

from collections.abc import Iterable
from typing import Any

from fermi.launch.spec import Problem


class ApiError(Exception):
    """One reason. `params` fill the text that `fermi.messages` has for `code`.

    raise ApiError(409, "TASK_NOT_FINAL", status=task.state)
    """

    def __init__(self, http_status: int, code: str, field: str = "", **params: Any) -> None:
        super().__init__(code)
        self.status = http_status
        self.code = code
        self.problems = [Problem(field, code, params)]


class ProblemsError(ApiError):
    """Everything that is wrong with a request, at once: 400 INVALID_REQUEST."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        Exception.__init__(self, "INVALID_REQUEST")
        self.status = 400
        self.code = "INVALID_REQUEST"
        self.problems = list(problems)
