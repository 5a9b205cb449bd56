"""What services raise when a request cannot be served; the exception handler turns it into the error envelope."""

from collections.abc import Iterable, Sequence
from typing import Any

from apps.common.bounds import MAX_PROBLEMS
from fermi.jobs.spec import Problem


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


def cut(problems: Sequence[Problem]) -> Sequence[Problem]:
    """At most MAX_PROBLEMS; the last one then says how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    shown = problems[: MAX_PROBLEMS - 1]
    return [*shown, Problem("", "MORE_PROBLEMS", {"count": len(problems) - len(shown)})]


def together(wrong: Sequence[Problem], found: Iterable[Problem]) -> list[Problem]:
    """Both, but for what only follows from a field's being left out."""
    return [*wrong, *(problem for problem in found if not unread(wrong, problem.field))]


def unread(wrong: Iterable[Problem], *fields: str) -> bool:
    """Whether the value of one of `fields` is not known, because of what is `wrong` with the shape of it, of what it is
    within, or of what is in its list."""
    return any(_leaves_out(problem.field, field) for problem in wrong for field in fields)


def _leaves_out(wrong: str, field: str) -> bool:
    within, _, place = wrong.rpartition(".")
    return field == wrong or field.startswith(f"{wrong}.") or (place.isdecimal() and _leaves_out(within, field))
