"""Commands beside ranks, as the platform starts them."""

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.base import Backend
from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Handle, Rendered
from tests.envd_client import Ran, ran

SHOWN = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
LEAVES = "setsid sleep 600 & echo $!; exec sleep 600"


class Beside:
    """The ranks of an attempt."""

    def __init__(self, backend: Backend, plan: Rendered, handle: Handle) -> None:
        self.backend, self.plan, self.handle = backend, plan, handle

    def dial(self, rank: int) -> socket.socket:
        return self.backend.get_rank_exec(self.plan, self.handle, rank).dial()

    def open_stream(self, rank: int, *command: str, **more: Any) -> socket.socket:
        stream = self.dial(rank)
        answer = protocol.send_request(stream, {"open": "exec", "command": list(command) or None, **more}, 60)
        assert answer == {"ok": True}, answer
        stream.settimeout(60)
        return stream

    def run(self, rank: int, *command: str, **more: Any) -> Ran:
        with self.open_stream(rank, *command, **more) as stream:
            return ran(stream)

    def read_environment(self, rank: int, **more: Any) -> tuple[Mapping[str, str], Path]:
        """Variables and working directory."""
        done = self.run(rank, sys.executable, "-c", SHOWN, **more)
        assert (done.code, done.err) == (0, ""), done
        env, cwd = json.loads(done.out)
        return env, Path(cwd)

    def refused(self, rank: int) -> BackendError:
        with pytest.raises(BackendError) as no:
            self.dial(rank).close()
        return no.value


def first_word(stream: socket.socket) -> str:
    """What comes until the first line's end."""
    frames, said = protocol.FrameDecoder(), b""
    while b"\n" not in said:
        piece = stream.recv(1 << 12)
        assert piece, said
        said += b"".join(payload for channel, payload in frames.feed(piece) if channel == protocol.OUT)
    return said.decode().strip()
