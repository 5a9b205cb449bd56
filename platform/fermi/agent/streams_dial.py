"""Opens streams of this host for clients of the platform, which wait a few seconds for each: into a managed
environment, or next to a rank. The platform cannot reach the host, so the agent dials both ends and joins them."""

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from fermi.agent import streams
from fermi.agent.server import WorkerApi
from fermi.client import FermiError

Dial = Callable[[str, str], socket.socket | None]
"""Returns a stream for a worker and the name of a run, or None. Raises OSError and BackendError."""


class ReverseTunnels:
    """Opens the streams that heartbeats request."""

    def __init__(
        self, server: WorkerApi, token: Callable[[str], str], dial: Dial, say: Callable[[str, str, str], None]
    ) -> None:
        self._server, self._token, self._dial, self._say = server, token, dial, say
        self._opened: deque[str] = deque(maxlen=1000)

    def learn(self, worker: str, channels: Iterable[Mapping[str, str]]) -> None:
        """Open the channels that are new in the answer to a heartbeat; the same ones are repeated there for a while."""
        for channel in channels:
            if channel["id"] not in self._opened:
                self._opened.append(channel["id"])
                about = (worker, channel["id"], channel["run"])
                threading.Thread(target=self._open, args=about, daemon=True).start()

    def _open(self, worker: str, channel: str, run: str) -> None:
        try:
            stream = self._dial(worker, run)
        except Exception as error:  # the waiting client times out by itself
            self._say("door", run, f"no answer: {error}")
            return
        self._say("door", run, "")
        if stream is None:
            return
        with stream:
            try:
                web = self._server.channel(worker, self._token(worker), channel)
            except FermiError as error:
                self._say("channel", run, f"no way to the platform: {error.message}")
                return
            self._say("channel", run, "")
            streams.join_streams(stream, web)
