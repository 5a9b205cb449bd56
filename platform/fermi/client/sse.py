"""Server-Sent Events: a stream that reconnects where it broke off."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from httpx_sse import EventSource, ServerSentEvent

from fermi.client.errors import FermiError, RequestRefusedError, ThrottledError, UnexpectedAnswerError, UnreachableError
from fermi.client.transport import Transport, compute_pause

MEDIA_TYPE = "text/event-stream"
SILENCE_TIMEOUT_SECONDS = 45.0  # the platform says something every 15 s


class Event(NamedTuple):
    """One event. `id` is where a stream can be resumed, right after this event."""

    kind: str
    data: Any
    id: str


BEAT_KIND = "beat"
"""Kind of the keep-alive event, which a platform sends when it has nothing else to send."""


def stream_events(
    transport: Transport,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    last_id: str = "",
    patience: float | None = None,
    on_break: Callable[[FermiError], None] | None = None,
) -> Iterator[Event]:
    """Yield events until one of kind `end` (which is yielded, too), across broken connections and restarts of the
    platform: each new connection names the last event received, so that none is lost or delivered twice.

    Raise the last error after `patience` seconds without an event or a beat (None = never), and at once where the
    platform refuses. `on_break` is called with the error of every break.
    """
    attempt, heard = 0, time.monotonic()
    while True:
        try:
            for event in _read_events(transport, path, params, last_id):
                attempt, heard = 0, time.monotonic()
                last_id = event.id or last_id
                if event.event == BEAT_KIND or not event.data:  # httpx-sse yields a comment as an event without data
                    continue
                yield Event(event.event, event.json(), last_id)
                if event.event == "end":
                    return
            failure: FermiError = UnreachableError("the platform ended the stream early", code="UNREACHABLE")
        except FermiError as error:
            if isinstance(error, (RequestRefusedError, UnexpectedAnswerError)) and not isinstance(
                error, ThrottledError
            ):
                raise
            failure = error
        if patience is not None and time.monotonic() - heard > patience:
            raise failure
        if on_break:
            on_break(failure)
        time.sleep(compute_pause(attempt, failure.retry_after))
        attempt += 1


def _read_events(
    transport: Transport, path: str, params: Mapping[str, Any] | None, last_id: str
) -> Iterator[ServerSentEvent]:
    headers = {"Accept": MEDIA_TYPE} | ({"Last-Event-ID": last_id} if last_id else {})
    with transport.open(path, params=params, headers=headers, silence_s=SILENCE_TIMEOUT_SECONDS) as response:
        if not response.headers.get("Content-Type", "").startswith(MEDIA_TYPE):
            raise UnexpectedAnswerError(f"{response.url} is not an event stream", code="UNEXPECTED_ANSWER")
        yield from EventSource(response).iter_sse()
