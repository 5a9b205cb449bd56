"""The short way for requests that come by the thousand: read and answered without h11 and ASGI, which take longer than
all that a heartbeat has to do.

Only the plainest form is read here: `POST` of one address in HTTP/1.1, a body of known length, and no header that
changes how the connection goes on. Whatever else there is stays h11's, byte for byte as it came.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LARGEST_HEAD = 4096
LARGEST = 1 << 20  # bytes of a body
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,7}")
_NOT_HERE = {b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"trailer", b"te"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """`length` of the body; `host` and `language` are headers, empty where they were not said."""

    length: int
    host: str
    language: str


@dataclass(frozen=True)
class Way:
    """Who answers `POST path`. `takes`: whether what is asked of a host is asked here. `answer`: from a body and a
    language, the body of an answer 200, now or later; None: somebody else has to be asked."""

    path: str
    takes: Callable[[str], bool]
    answer: Callable[[bytes, str], bytes | Awaitable[bytes | None] | None]

    @cached_property
    def begin(self) -> bytes:
        return b"POST %s HTTP/1.1\r\n" % self.path.encode()


@lru_cache(1024)  # those of one agent differ in their length alone
def read(head: bytes) -> Head | None:
    """A head without its first line. None: it is not of the plainest form."""
    fields: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        found = _FIELD.fullmatch(line)
        name = found[1].lower() if found else b""
        if found is None or name in fields or name in _NOT_HERE:
            return None
        fields[name] = found[2] or b""
    length = fields.get(b"content-length", b"")
    if not _LENGTH.fullmatch(length) or int(length) > LARGEST or not fields.get(b"host"):
        return None
    if fields.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    return Head(int(length), fields[b"host"].decode(), fields.get(b"accept-language", b"").decode())


class ShortWay(H11Protocol):
    """`way`, of the process: who is asked without a detour. What comes while an answer is made, or before a request is
    whole, waits in `_kept`."""

    way: ClassVar[Way | None] = None
    _kept = b""
    _answering: asyncio.Task[None] | None = None
    _last = False  # no request after this one

    def data_received(self, data: bytes) -> None:
        if not self._kept and self._answering is None and not self._begins(data):
            super().data_received(data)
            return
        self._unset_keepalive_if_required()
        self._kept += data
        if self._answering is None:
            self._go_on()
        elif len(self._kept) > LARGEST:
            self.flow.pause_reading()

    def _begins(self, data: bytes) -> bool:
        is_next = self.way is not None and data.startswith(self.way.begin)
        return is_next and self.conn.their_state is h11.IDLE and self.conn.trailing_data == (b"", False)

    def _go_on(self) -> None:
        """Answers what is there, as far as it is whole and of the plainest form."""
        while self._kept and self._answering is None:
            assert self.way is not None
            begin = self.way.begin
            if not self._kept.startswith(begin):
                return self._leave_to_h11()
            end = self._kept.find(b"\r\n\r\n", len(begin), LARGEST_HEAD)
            if end < 0:
                return self._leave_to_h11() if len(self._kept) >= LARGEST_HEAD else None
            head, rest = read(self._kept[len(begin) : end]), end + 4
            if head is None or not self.way.takes(head.host):
                return self._leave_to_h11()
            if len(self._kept) - rest < head.length:
                return None
            whole, self._kept = self._kept[: rest + head.length], self._kept[rest + head.length :]
            answer = self.way.answer(whole[rest:], head.language)
            if isinstance(answer, bytes):
                self._send(answer)
            elif answer is None:
                self._kept = whole + self._kept
                return self._leave_to_h11()
            else:
                self._unset_keepalive_if_required()
                self._answering = self.loop.create_task(self._wait(answer, whole))
                self._answering.add_done_callback(self.tasks.discard)
                self.tasks.add(self._answering)
        return None

    async def _wait(self, answer: Awaitable[bytes | None], whole: bytes) -> None:
        try:
            found = await answer
        except Exception:
            log.exception("a request on the short way failed")
            self.transport.close()
            return
        self._answering = None
        if found is None:
            self._kept = whole + self._kept
            self._leave_to_h11()
        else:
            self._send(found)
            self.flow.resume_reading()
            self._go_on()

    def _leave_to_h11(self) -> None:
        kept, self._kept = self._kept, b""
        super().data_received(kept)

    def _send(self, body: bytes) -> None:
        if self.transport.is_closing():
            return
        about = b"".join(b"%s: %s\r\n" % one for one in self.server_state.default_headers)
        self.transport.write(
            b"HTTP/1.1 200 OK\r\n%s%scontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (about, b"connection: close\r\n" if self._last else b"", len(body), body)
        )
        self.server_state.total_requests += 1
        if self._last:
            self.transport.close()
        else:
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def shutdown(self) -> None:
        if self._answering is None:
            super().shutdown()
        self._last = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()
        super().connection_lost(exc)
