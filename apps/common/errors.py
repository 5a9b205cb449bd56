"""Errors that services raise for requests that cannot be served; the exception handler turns them into the error
envelope."""

from collections.abc import Iterable, Sequence
from typing import Any

from apps.common.bounds import MAX_PROBLEMS
from fermi.jobs.spec import Problem


class ApiError(Exception):
    """One error. `params` fill the text that `fermi.messages` has for `code`.

    raise ApiError(409, "TASK_NOT_FINAL", status=task.state)

    `extra`: further fields of the envelope.
    """

    def __init__(self, http_status: int, code: str, field: str = "", **params: Any) -> None:
        super().__init__(code)
        self.status = http_status
        self.code = code
        self.problems = [Problem(field, code, params)]
        self.extra: dict[str, Any] = {}

    def finish(self, request: Any) -> "ApiError":
        """Return the error to answer with, once what the request did is rolled back. An app may store something for
        `request`, which was refused, and name it."""
        return self


class ProblemsError(ApiError):
    """All problems of a request at once: 400 INVALID_REQUEST."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        Exception.__init__(self, "INVALID_REQUEST")
        self.status = 400
        self.code = "INVALID_REQUEST"
        self.problems = list(problems)
        self.extra = {}


def limit_problems(problems: Sequence[Problem]) -> Sequence[Problem]:
    """Return at most MAX_PROBLEMS problems; the last one then says how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    shown = problems[: MAX_PROBLEMS - 1]
    return [*shown, Problem("", "MORE_PROBLEMS", {"count": len(problems) - len(shown)})]


def merge_problems(shape_problems: Sequence[Problem], rule_problems: Iterable[Problem]) -> list[Problem]:
    """Return both lists, without those of `rule_problems` that only follow from a field that was left out."""
    return [
        *shape_problems,
        *(problem for problem in rule_problems if not is_value_unknown(shape_problems, problem.field)),
    ]


def is_value_unknown(problems: Iterable[Problem], *fields: str) -> bool:
    """Return True if the value of one of `fields` is unknown because of a problem with its shape, with what contains
    it, or with an item of its list."""
    return any(_covers_field(problem.field, field) for problem in problems for field in fields)


def _covers_field(path: str, field: str) -> bool:
    within, _, place = path.rpartition(".")
    return field == path or field.startswith(f"{path}.") or (place.isdecimal() and _covers_field(within, field))
