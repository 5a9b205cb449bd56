"""Server-Sent Events: a parser, and a stream that reconnects where it broke off."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fermi.client.errors import FermiError, RequestRefusedError, ThrottledError, UnexpectedAnswerError, UnreachableError
from fermi.client.transport import Transport, compute_pause

MEDIA_TYPE = "text/event-stream"
SILENCE_TIMEOUT_S = 45.0  # the platform says something every 15 s


class Event(NamedTuple):
    """One event. `id` is where a stream can be resumed, right after this event."""

    kind: str
    data: Any
    id: str


class SseParser:
    """Incremental parser: takes bytes cut anywhere. Lines end in LF or CRLF only: the characters U+0085 and U+2028, at
    which `str.splitlines` also cuts, are part of the text. An event that a broken connection left unfinished is never
    delivered."""

    def __init__(self, last_id: str = "") -> None:
        self._rest = b""
        self._kind = ""
        self._data: list[str] = []
        self._id = last_id

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r").decode("utf-8")
            if line:
                self._field(line)
            elif self._data:
                yield self._event()

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._kind = value
            case "id":
                self._id = value

    def _event(self) -> Event:
        event = Event(self._kind or "message", json.loads("\n".join(self._data)), self._id)
        self._kind, self._data = "", []
        return event


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

    Raise the last error after `patience` seconds without a byte (None = never), and at once where the platform refuses.
    `on_break` is called with the error of every break.
    """
    attempt, heard = 0, time.monotonic()
    while True:
        parser = SseParser(last_id)
        try:
            for chunk in _chunks(transport, path, params, last_id):
                attempt, heard = 0, time.monotonic()
                for event in parser.feed(chunk):
                    last_id = event.id
                    if event.kind == BEAT_KIND:
                        continue
                    yield event
                    if event.kind == "end":
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


def _chunks(transport: Transport, path: str, params: Mapping[str, Any] | None, last_id: str) -> Iterator[bytes]:
    headers = {"Accept": MEDIA_TYPE} | ({"Last-Event-ID": last_id} if last_id else {})
    with transport.open(path, params=params, headers=headers, silence_s=SILENCE_TIMEOUT_S) as response:
        if not response.headers.get("Content-Type", "").startswith(MEDIA_TYPE):
            raise UnexpectedAnswerError(f"{response.url} is not an event stream", code="UNEXPECTED_ANSWER")
        yield from response.iter_bytes()
