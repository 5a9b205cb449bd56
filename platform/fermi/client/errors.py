"""Exceptions of the client.

FermiError
├── NoPlatformError            no address of a platform is known
├── UnreachableError           no answer: refused, timed out, broken off
├── UnexpectedAnswerError      an answer, but not one of a Fermi platform
├── RequestRefusedError        4xx: the same request again will be refused again
│   ├── InvalidRequestError    400 and what is not below; `errors` has every problem
│   ├── NotAuthenticatedError  401
│   ├── ForbiddenError         403
│   ├── NotFoundError          404
│   ├── ConflictError          409
│   └── ThrottledError         429; `retry_after` seconds
└── ServerError                5xx
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class Problem(NamedTuple):
    """One problem of a request. `field` is a path such as `distributedConfig.masterNode`; "" = the request as a whole.
    `place`: of a query over runs, the part that is wrong: its first character and the first behind it."""

    field: str
    code: str
    message: str
    hint: str
    place: tuple[int, int] | None = None


class FermiError(Exception):
    """Base of the client's exceptions. `status` is the HTTP status, 0 without an answer; `code` is stable, `message` is
    in the client's language."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int = 0,
        errors: tuple[Problem, ...] = (),
        request_id: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.errors = errors
        self.request_id = request_id
        self.retry_after = retry_after

    @classmethod
    def of_envelope(cls, status: int, body: Mapping[str, Any], *, retry_after: float = 0.0) -> Self:
        """Return the exception that an error envelope of the API describes."""
        problems = (
            Problem(
                item.get("field", ""),
                item.get("error", ""),
                item.get("message", ""),
                item.get("hint", ""),
                _read_place(item.get("place")),
            )
            for item in body.get("errors") or ()
        )
        return cls(
            body.get("message", ""),
            code=body.get("error", ""),
            status=status,
            errors=tuple(problems),
            request_id=body.get("requestId", ""),
            retry_after=retry_after,
        )


def _read_place(place: Any) -> tuple[int, int] | None:
    match place:
        case {"from": int(begin), "to": int(end)}:
            return begin, end
    return None


class NoPlatformError(FermiError):
    pass


class UnreachableError(FermiError):
    pass


class UnexpectedAnswerError(FermiError):
    pass


class RequestRefusedError(FermiError):
    pass


class InvalidRequestError(RequestRefusedError):
    pass


class NotAuthenticatedError(RequestRefusedError):
    pass


class ForbiddenError(RequestRefusedError):
    pass


class NotFoundError(RequestRefusedError):
    pass


class ConflictError(RequestRefusedError):
    pass


class ThrottledError(RequestRefusedError):
    pass


class ServerError(FermiError):
    pass


_BY_STATUS: dict[int, type[FermiError]] = {
    401: NotAuthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: ThrottledError,
}


def choose_error_type(status: int) -> type[FermiError]:
    """Return the exception class for an HTTP status of 400 or more."""
    return ServerError if status >= 500 else _BY_STATUS.get(status, InvalidRequestError)


# The former names, for one release: programs of users catch them.
Conflict = ConflictError
Forbidden = ForbiddenError
InvalidRequest = InvalidRequestError
NoPlatform = NoPlatformError
NotAuthenticated = NotAuthenticatedError
NotFound = NotFoundError
RequestRefused = RequestRefusedError
Throttled = ThrottledError
UnexpectedAnswer = UnexpectedAnswerError
Unreachable = UnreachableError
