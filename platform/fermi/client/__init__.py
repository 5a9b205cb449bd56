"""Python client of the platform: `from fermi.client import Fermi`.

`Fermi` is imported on first use, so that the command line can read its configuration without importing the HTTP
library.
"""

from typing import TYPE_CHECKING, Any

from fermi.client.errors import (
    Conflict,
    ConflictError,
    FermiError,
    Forbidden,
    ForbiddenError,
    InvalidRequest,
    InvalidRequestError,
    NoPlatform,
    NoPlatformError,
    NotAuthenticated,
    NotAuthenticatedError,
    NotFound,
    NotFoundError,
    Problem,
    RequestRefused,
    RequestRefusedError,
    ServerError,
    Throttled,
    ThrottledError,
    UnexpectedAnswer,
    UnexpectedAnswerError,
    Unreachable,
    UnreachableError,
)

if TYPE_CHECKING:
    from fermi.client.client import Fermi

__all__ = [
    "Conflict",
    "ConflictError",
    "Fermi",
    "FermiError",
    "Forbidden",
    "ForbiddenError",
    "InvalidRequest",
    "InvalidRequestError",
    "NoPlatform",
    "NoPlatformError",
    "NotAuthenticated",
    "NotAuthenticatedError",
    "NotFound",
    "NotFoundError",
    "Problem",
    "RequestRefused",
    "RequestRefusedError",
    "ServerError",
    "Throttled",
    "ThrottledError",
    "UnexpectedAnswer",
    "UnexpectedAnswerError",
    "Unreachable",
    "UnreachableError",
]


def __getattr__(name: str) -> Any:
    if name == "Fermi":
        from fermi.client.client import Fermi

        return Fermi
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
