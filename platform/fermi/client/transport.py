"""Connection pool that understands the API's envelope: returns `data`, raises FermiError, repeats what may be
repeated."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from fermi.client.config import Endpoint
from fermi.client.errors import FermiError, NotFoundError, UnexpectedAnswerError, UnreachableError, choose_error_type

API_PREFIX = "/api/v1"
REPEATABLE_METHODS = {"GET", "HEAD", "PUT", "DELETE"}
UNAVAILABLE_STATUSES = {
    502,
    503,
    504,
}  # a proxy without a server behind it, a server that starts or is short of something
MIN_PAUSE_S, MAX_PAUSE_S = 0.2, 10.0
MIN_POLL_S, MAX_POLL_S = 0.1, 1.0
MAX_OUTAGE_SECONDS = 300.0
"""How long the platform may be away (a restart, an upgrade) before waiting and following give up."""
MAX_RETRY_AFTER_SECONDS = 60.0  # a longer wait is the caller's to decide
RATE_LIMITED_SECONDS = 60.0
"""How long a call beyond the rate limit is repeated, however often: as long as a bucket needs to fill again."""

# The request certainly did not reach the platform, so that even a creation may be sent again.
NOT_SENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def compute_pause(attempt: int, at_least: float = 0.0) -> float:
    """Return the seconds to wait before the attempt after `attempt` (from 0): exponential, with jitter so that clients
    do not return at the same moment, at least `at_least`."""
    return max(at_least, min(MIN_PAUSE_S * 2**attempt, MAX_PAUSE_S) * random.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class ChannelAddress:
    """Address of a WebSocket channel of the platform: `headers` are sent with the request; connecting is tried again
    `retries` times where the platform does not answer."""

    url: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    retries: int = 4

    @property
    def address(self) -> str:
        scheme, _, rest = self.url.partition("://")
        return f"{'wss' if scheme == 'https' else 'ws'}://{rest}{self.path}"


class Transport:
    """HTTP connections to one platform with one token."""

    def __init__(self, place: Endpoint, lang: str | None, timeout: float, retries: int) -> None:
        """`retries`: how often a repeatable call is tried again; `timeout`: seconds without a byte. Raise
        UnreachableError for an address that is none."""
        headers = {"Accept-Language": lang} if lang else {}
        if place.token:
            headers["Authorization"] = f"Bearer {place.token}"
        self.url = place.url
        self.retries = retries
        self._headers = headers
        try:
            self._http = httpx.Client(base_url=place.url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, ValueError) as error:
            raise UnreachableError(f"{place.url} is not an address: {error}", code="UNREACHABLE") from error

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: Callable[[], Iterator[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        patience: float = 0.0,
    ) -> Any:
        """Return `data` of the answer. `repeatable`: repeating the request does not change its effect (default: by the
        HTTP method); it is then retried for at least `patience` seconds; beyond the rate limit as `Retry-After` says,
        for a minute. Parameters that are None are left out.
        `content`: opens a raw body, from its beginning each time. Raise FermiError."""
        begun = time.monotonic()
        repeatable = method in REPEATABLE_METHODS if repeatable is None else repeatable
        attempt = 0
        while True:
            try:
                body = {"json": json} if content is None else {"content": content()}
                return self._once(method, path, params=_drop_none(params), headers=dict(headers or {}), **body)
            except FermiError as error:
                if method == "DELETE" and attempt and isinstance(error, NotFoundError):
                    return None  # an earlier attempt did it and its answer was lost
                limited = bool(self.retries) and error.code == "RATE_LIMITED"
                span = max(patience, RATE_LIMITED_SECONDS) if limited else patience
                enough = attempt >= self.retries and time.monotonic() - begun >= span
                if enough or not _may_retry(error, repeatable):
                    raise
                time.sleep(compute_pause(attempt, error.retry_after))
                attempt += 1

    def wait(
        self, path: str, has_ended: Callable[[Any], bool], what: str, timeout: float | None, patience: float
    ) -> Any:
        """Get `path` until it has ended, and return it. Raise TimeoutError after `timeout` seconds (None = never). A
        platform that is unreachable for less than `patience` seconds is waited for."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        pause = MIN_POLL_S
        while True:
            left = deadline - time.monotonic()
            found = self.call("GET", path, patience=min(patience, left))
            if has_ended(found):
                return found
            if left <= 0:
                raise TimeoutError(f"{what} has not ended within {timeout:g} s")
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, MAX_POLL_S)

    def _once(self, method: str, path: str, **request: Any) -> Any:
        try:
            response = self._http.request(method, API_PREFIX + path, **request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return unwrap_envelope(response)

    @contextmanager
    def open(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float = 60.0,
    ) -> Iterator[httpx.Response]:
        """Yield the response, whose body is to be read piece by piece. Raise UnreachableError after `silence_s` seconds
        without a byte, also while the body is read."""
        timeout = httpx.Timeout(self._http.timeout.connect, read=silence_s)
        request = self._http.build_request(
            "GET", API_PREFIX + path, params=_drop_none(params), headers=dict(headers or {}), timeout=timeout
        )
        try:
            response = self._http.send(request, stream=True)
            try:
                if response.status_code >= 400:
                    response.read()
                    unwrap_envelope(response)
                yield response
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def channel_address(self, path: str) -> ChannelAddress:
        """Return the address of a WebSocket channel, which the functions of `fermi.client.channels` open."""
        return ChannelAddress(self.url, API_PREFIX + path, self._headers, self.retries)

    def _unreachable(self, error: httpx.HTTPError) -> UnreachableError:
        return UnreachableError(f"{self.url} does not answer: {error or type(error).__name__}", code="UNREACHABLE")


def _may_retry(error: FermiError, repeatable: bool) -> bool:
    if error.retry_after > MAX_RETRY_AFTER_SECONDS:
        return False
    if isinstance(error, UnreachableError):
        return repeatable or isinstance(error.__cause__, NOT_SENT_ERRORS)
    return error.status == 429 or (repeatable and error.status in UNAVAILABLE_STATUSES)


def _drop_none(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def unwrap_envelope(response: httpx.Response) -> Any:
    """Return `data` of an envelope. Raise the FermiError that an error envelope describes, UnexpectedAnswerError for
    any other answer."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.status_code >= 400:
        try:
            retry_after = float(response.headers.get("Retry-After", 0))
        except ValueError:  # HTTP also allows a date
            retry_after = 0.0
        envelope = body if isinstance(body, dict) and "error" in body else {"message": _describe_response(response)}
        raise choose_error_type(response.status_code).of_envelope(
            response.status_code, envelope, retry_after=retry_after
        )
    if not isinstance(body, dict) or "data" not in body:
        raise UnexpectedAnswerError(
            f"{_describe_response(response)} is not an answer of a Fermi platform",
            code="UNEXPECTED_ANSWER",
            status=response.status_code,
        )
    return body["data"]


def _describe_response(response: httpx.Response) -> str:
    kind = response.headers.get("Content-Type", "no content type")
    return f"HTTP {response.status_code} ({kind}) from {response.url}"


def build_telemetry_params(
    metrics: Sequence[str], begins: str | None, ends: str | None, points: int | None
) -> Mapping[str, Any]:
    """Return the query parameters of a request for telemetry series. `begins`, `ends`: ISO 8601; `points`: how many
    points the answer's time grid has at most."""
    return {"metric": metrics, "from": begins, "to": ends, "points": points}
