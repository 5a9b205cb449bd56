"""The protocol between the platform and `fermi.inside`. Standard library only, Python 3.9 or later.

The stream is the program's standard input and output. READY_LINE comes first. Then come, in both directions, lines of
JSON; a line that has `"bytes": n` is followed by so many bytes.

    ──▶ {"id": 1, "ask": "begin", …}          a request; `ask` names it, the rest is its own
    ◀── {"id": 1, "ok": true, …}              its answer, or
    ◀── {"id": 1, "ok": false, "code": "INSIDE_NO_ROOM", "params": {…}}
    ◀── {"id": 2, "ok": true, "bytes": n, …}  one that has bytes
    ◀── {"of": "task-x-1", "node": 0, …}      reports of `follow`, at any time: see `progress.py`
    ◀── {"alive": 1764237600.0}               every ten seconds, while anything is followed
    ──▶ {"alive": true}                       the same, without an answer

The program ends with its standard input, and if it follows and has received nothing for a minute: Kubernetes leaves a
program running whose stream broke without a close frame, and does not end its standard input. An idle stream is cut
after four hours; these messages keep it from being idle. What the program has started goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

READY_LINE = b"fermi: ready\n"
SEND_LINE = b"fermi: send\n"
"""Sent in place of READY_LINE by `bootstrap.py`, which requests the bundle: a line with its length, and so many bytes.
"""
MAX_LINE_BYTES = 16 << 20
"""An order has the files of its plan, possibly for thousands of nodes."""
MAX_DATA_BYTES = 1 << 20
ALIVE_SECONDS = 10.0
MAX_SILENCE_SECONDS = 60.0


class ProtocolError(Exception):
    """Received data does not follow the protocol."""


class InsideRefusedError(Exception):
    """A refused request. `code` and `params` are the answer's."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.code, self.params = code, params


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def encode_frame(message: Mapping[str, Any], data: bytes) -> bytes:
    """Return a message with its bytes."""
    return encode_line({**message, "bytes": len(data)}) + data


def read_message(stream: BinaryIO, max_bytes: int = MAX_DATA_BYTES) -> tuple[dict[str, Any], bytes] | None:
    """Return the next message and its bytes, or None at the end of the stream. Raises ProtocolError for invalid or too
    large ones."""
    text = stream.readline(MAX_LINE_BYTES + 1)
    if not text:
        return None
    if len(text) > MAX_LINE_BYTES or not text.endswith(b"\n"):
        raise ProtocolError("a line that is too long, or cut")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("no JSON") from error
    if not isinstance(said, dict):
        raise ProtocolError("no object")
    size = said.get("bytes", 0)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= max_bytes:
        raise ProtocolError("so many bytes are not taken")
    data = stream.read(size) if size else b""
    if len(data) < size:
        raise ProtocolError("cut")
    return said, data
