"""Enter an environment that the platform made, through its environment daemon: `fermi.inside` is a command of it, and
reaches what the environment's own processes reach. What it starts there belongs to the environment's run, and ends with
it."""

import socket
import threading
from contextlib import suppress

from fermi.engines.inside import bundle
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.envd import protocol

REQUEST_SECONDS = 15.0
ANSWER_SECONDS = 45.0
DRAIN_SECONDS = 1.0
CHUNK_BYTES = 1 << 16
MAX_STDERR_BYTES = 2000
"""Bytes of the command's standard error that are kept."""


class EnvdCommand:
    """Command of an environment daemon. `stream`: its standard input and output, without the daemon's frames. Two
    threads copy, until either side has ended."""

    def __init__(self, keeper: socket.socket) -> None:
        self._keeper, self._complaints = keeper, b""
        self.stream, self._inside = socket.socketpair()
        keeper.settimeout(None)
        self._hearing = threading.Thread(target=self._hear, name="keeper, out", daemon=True)
        self._hearing.start()
        threading.Thread(target=self._give, name="keeper, in", daemon=True).start()

    def why(self) -> str:
        """Return the end of the standard error of a command that has ended."""
        self._hearing.join(DRAIN_SECONDS)
        return self._complaints.decode(errors="replace").strip()

    def _hear(self) -> None:
        frames = protocol.FrameDecoder()
        with suppress(OSError, ValueError, protocol.ProtocolError):
            while data := self._keeper.recv(CHUNK_BYTES):
                for channel, payload in frames.feed(data):
                    if channel == protocol.OUT:
                        self._inside.sendall(payload)
                    elif channel == protocol.ERR:
                        self._complaints = (self._complaints + payload)[-MAX_STDERR_BYTES:]
        with suppress(OSError):
            self._inside.shutdown(socket.SHUT_RDWR)  # wakes the other thread

    def _give(self) -> None:
        with suppress(OSError):
            while data := self._inside.recv(CHUNK_BYTES):
                self._keeper.sendall(protocol.encode_frame(protocol.IN, data))
        with suppress(OSError):
            self._keeper.shutdown(socket.SHUT_RDWR)
        self._hearing.join()
        self._keeper.close()
        self._inside.close()


def enter_environment(daemon: socket.socket, python: str = "", *module: str) -> InsideSession:
    """Return a session with `fermi.inside`. `keeper`: a stream that is ready for a request (`EnvironmentBackend.dial`).
    `python`, `module`: see `bundle.build_command`. Raise InsideError."""
    try:
        answer = protocol.send_request(
            daemon, {"open": "exec", "command": bundle.build_command(python, *module)}, REQUEST_SECONDS
        )
    except (OSError, protocol.ProtocolError) as error:
        daemon.close()
        raise InsideError("INSIDE_SILENT", why=str(error)) from error
    if not answer.get("ok"):
        daemon.close()
        raise InsideError("INSIDE_SILENT", why=str(answer.get("code")))
    running = EnvdCommand(daemon)
    try:
        return InsideSession(running.stream, ANSWER_SECONDS).greet()
    except InsideError as error:
        if error.code == "INSIDE_SILENT" and (why := running.why()):
            raise InsideError("INSIDE_SILENT", why=why) from error
        raise
