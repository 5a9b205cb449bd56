"""Python client of the platform: `from fermi.client import Fermi`.

`Fermi` is imported on first use, so that the command line can read its configuration without importing the HTTP
library.
"""

from typing import TYPE_CHECKING, Any

from fermi.client.errors import (
    Conflict,
    FermiError,
    Forbidden,
    InvalidRequest,
    NoPlatform,
    NotAuthenticated,
    NotFound,
    Problem,
    RequestRefused,
    ServerError,
    Throttled,
    UnexpectedAnswer,
    Unreachable,
)

if TYPE_CHECKING:
    from fermi.client.client import Fermi

__all__ = [
    "Conflict",
    "Fermi",
    "FermiError",
    "Forbidden",
    "InvalidRequest",
    "NoPlatform",
    "NotAuthenticated",
    "NotFound",
    "Problem",
    "RequestRefused",
    "ServerError",
    "Throttled",
    "UnexpectedAnswer",
    "Unreachable",
]


def __getattr__(name: str) -> Any:
    if name == "Fermi":
        from fermi.client.client import Fermi

        return Fermi
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
