"""What services raise when a request cannot be served; the exception handler turns it into the error envelope."""

from collections.abc import Iterable, Sequence
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


def together(wrong: Sequence[Problem], found: Iterable[Problem]) -> list[Problem]:
    """Both, but for what only follows from a field's being left out."""
    left_out = {problem.field for problem in wrong}
    return [*wrong, *(problem for problem in found if problem.field not in left_out)]
