"""How tools call the REST API, and the error that a refused call raises."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

API_PREFIX = "/api/v1"


class Download(NamedTuple):
    """A range of a file. `total`: bytes of the whole file, None where the server does not say."""

    content: bytes
    total: int | None


@dataclass
class ApiProblemError(Exception):
    """An error envelope of the API. `errors`: its problems, each with `field`, `error`, `message` and `hint`;
    `proposal`: id of the proposal that the API stored instead of doing what was requested; `address`: path of the
    console's page where a person decides it."""

    status: int
    code: str
    message: str = ""
    errors: tuple[Mapping[str, Any], ...] = ()
    request_id: str = ""
    proposal: str | None = None
    address: str = ""

    @classmethod
    def from_envelope(cls, status: int, body: Any) -> "ApiProblemError":
        """Return the error that an answer with a status of 400 or more describes, whatever its body is."""
        if not isinstance(body, dict) or not isinstance(body.get("error"), str):
            return cls(status, "UNEXPECTED_ANSWER")
        errors = tuple(one for one in body.get("errors") or () if isinstance(one, dict))
        return cls(
            status, body["error"], str(body.get("message", "")), errors, str(body.get("requestId", "")),
            _read_proposal(body, "id") or None, _read_proposal(body, "address"),
        )  # fmt: skip


def _read_proposal(body: Mapping[str, Any], name: str) -> str:
    proposal = body.get("proposal")
    found = proposal.get(name) if isinstance(proposal, dict) else None
    return found if isinstance(found, str) else ""


class Caller(Protocol):
    """Calls the REST API with the rights of one token."""

    def has_scope(self, scope: str) -> bool:
        """Return False if the token may not call operations of the scope."""

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return `data` of the answer. `path`: below API_PREFIX; what is None in `query` is left out, and a list is
        repeated. Raise ApiProblemError."""

    async def download(self, path: str, query: Mapping[str, Any], offset: int, count: int) -> Download:
        """Return at most `count` bytes of a file from `offset` on. Raise ApiProblemError."""


def select_params(query: Mapping[str, Any] | None) -> list[tuple[str, str | int | float | bool | None]]:
    """Return the pairs of a query string."""
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in (query or {}).items():
        if value is None:
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            pairs.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
    return pairs


def cut_range(status: int, content_range: str, content: bytes, offset: int, count: int) -> Download:
    """Return the requested bytes of an answer to a range request: 206 has them, 200 the file from its beginning, 416
    none."""
    total = content_range.rpartition("/")[2]
    size = int(total) if total.isdecimal() else None
    if status == 416:
        return Download(b"", size)
    if status == 206:
        return Download(content[:count], size)
    return Download(content[offset : offset + count], size)
