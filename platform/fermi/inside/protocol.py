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

READY = b"fermi: ready\n"
SEND = b"fermi: send\n"
"""Sent in place of READY_LINE by `bootstrap.py`, which requests the bundle: a line with its length, and so many bytes.
"""
LONGEST_LINE = 16 << 20
"""An order has the files of its plan, possibly for thousands of nodes."""
LONGEST_BYTES = 1 << 20
ALIVE_SECONDS = 10.0
FORSAKEN_SECONDS = 60.0


class WireError(Exception):
    """Received data does not follow the protocol."""


class RefusedError(Exception):
    """A refused request. `code` and `params` are the answer's."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.code, self.params = code, params


def line(said: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def frame(said: Mapping[str, Any], data: bytes) -> bytes:
    """Return a message with its bytes."""
    return line({**said, "bytes": len(data)}) + data


def read(stream: BinaryIO, most: int = LONGEST_BYTES) -> tuple[dict[str, Any], bytes] | None:
    """Return the next message and its bytes, or None at the end of the stream. Raises ProtocolError for invalid or too
    large ones."""
    text = stream.readline(LONGEST_LINE + 1)
    if not text:
        return None
    if len(text) > LONGEST_LINE or not text.endswith(b"\n"):
        raise WireError("a line that is too long, or cut")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError("no JSON") from error
    if not isinstance(said, dict):
        raise WireError("no object")
    size = said.get("bytes", 0)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= most:
        raise WireError("so many bytes are not taken")
    data = stream.read(size) if size else b""
    if len(data) < size:
        raise WireError("cut")
    return said, data
