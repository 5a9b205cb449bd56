"""What a container printed, line by line with its time, and reading it the way `kubectl logs` does."""

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tests.fakes.kubernetes import clock

LOOK_SECONDS = 0.25


class Log:
    """Times are nanoseconds since 1970 and strictly increase, as a container runtime on one host writes them."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []
        self.closed = False
        self._changed = threading.Condition()

    def write(self, line: bytes) -> None:
        """`line` without its newline."""
        with self._changed:
            at = max(time.time_ns(), self.lines[-1][0] + 1 if self.lines else 0)
            self.lines.append((at, line))
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def read(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """Parts of the log as asked for. While following, b"" now and then: the reader may look who still listens."""
        start = self._start(query)
        stamps = query.get("timestamps") == "true"
        limit = int(query.get("limitBytes") or 0) or None
        follow = query.get("follow") == "true"
        while True:
            with self._changed:
                if start >= len(self.lines) and follow and not self.closed:
                    self._changed.wait(LOOK_SECONDS)
                lines, closed = self.lines[start:], self.closed
            start += len(lines)
            data = b"".join((rfc3339(at) + b" " if stamps else b"") + line + b"\n" for at, line in lines)
            if limit is not None:
                data, limit = data[:limit], limit - len(data)
            yield data
            if (closed and not lines) or not follow or (limit is not None and limit <= 0):
                return

    def _start(self, query: Mapping[str, str]) -> int:
        """The index of the first line asked for. `sinceTime` has whole seconds by the time a kubelet sees it."""
        since = 0.0
        if seconds := query.get("sinceSeconds"):
            since = time.time() - float(seconds)
        if text := query.get("sinceTime"):
            since = float(int(clock.parse(text).timestamp()))
        start = next((i for i, (at, _) in enumerate(self.lines) if at >= since * 1e9), len(self.lines))
        if tail := query.get("tailLines"):
            start = max(start, len(self.lines) - int(tail))
        return start


def rfc3339(nanoseconds: int) -> bytes:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return (datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:09d}Z").encode()
