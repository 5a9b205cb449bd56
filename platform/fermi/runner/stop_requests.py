"""Stop requests from outside: a signal, a file of the platform's, the end of standard input. Standard library only,
Python 3.9 or later."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from fermi.runner.files import read_json


class StopRequest(NamedTuple):
    """A request. `by`: a signal's name; empty = the platform, in its file. `grace_seconds` None: the spec's own.
    `still_seconds`: ranks that are idle for so long get no more grace. `reached_ranks`: the ranks have got the signal
    themselves."""

    by: str = ""
    grace_seconds: float | None = None
    still_seconds: float | None = None
    reached_ranks: bool = False


class StopRequests:
    """Receives requests. `signals` request the end, in order of priority; ranks get those in `heard` too. `path`: the
    platform's file, `{"grace_seconds": 30, "still_seconds": null}`. `until_eof`: the end of standard input counts as
    SIGHUP. `second_kills`: a second signal leaves no grace."""

    def __init__(
        self,
        *signals: signal.Signals,
        heard: Collection[signal.Signals] = (),
        path: str = "",
        until_eof: bool = False,
        second_kills: bool = False,
    ) -> None:
        self.signals, self.heard, self.path = signals, heard, path
        self.until_eof, self.second_kills = until_eof, second_kills
        self._early: list[int] = []
        self._file: Any = None  # as it was last seen
        self._asked = False

    def listen(self) -> None:
        """Record signals that come before the node runs."""
        for number in self.signals:
            signal.signal(number, lambda number, _: self._early.append(number))

    def early(self) -> StopRequest | None:
        """Return the request that came before any rank started, or None."""
        if self._at_eof():
            self._early.append(signal.SIGHUP)
        if self._early:
            return StopRequest(signal.Signals(self._early[0]).name)
        return StopRequest() if self.path and read_json(self.path) is not None else None

    def iterate_new(self, numbers: Collection[int]) -> Iterator[StopRequest]:
        """Yield the requests since the last call; `numbers`: of the signals."""
        found = [number for number in self.signals if number in numbers]
        if self._at_eof():
            found.append(signal.SIGHUP)
        for number in found:
            grace = 0.0 if self.second_kills and self._asked else None
            self._asked = True
            yield StopRequest(number.name, grace, reached_ranks=number in self.heard)
        stop = read_json(self.path) if self.path else None
        if stop is not None and stop != self._file:
            self._file = stop
            yield StopRequest("", stop["grace_seconds"], stop.get("still_seconds"))

    def _at_eof(self) -> bool:
        """Return True once at the end of standard input. Input is discarded."""
        if not self.until_eof or not select.select([0], [], [], 0)[0]:
            return False
        try:
            self.until_eof = bool(os.read(0, 1 << 16))
        except OSError:
            self.until_eof = False
        return not self.until_eof
