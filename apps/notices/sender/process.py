"""The process that sends messages, as the platform uses it: started when there is something to send, given one order
after the other, and killed when an order takes longer than its limit."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from django.conf import settings

from apps.notices.sender.errors import DeliveryError

MAX_PROCESSES = 2
"""Of each process of the platform, so that no more of its threads wait for sending."""
SEND_SECONDS, CHECK_SECONDS = 30.0, 10.0
MAX_ANSWER_BYTES = 64 << 10

_ROOT = Path(__file__).resolve().parents[3]
_START_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from apps.notices.sender.child import main; main()"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ")
_slots = threading.BoundedSemaphore(MAX_PROCESSES)


class SendersBusyError(Exception):
    """MAX_PROCESSES processes are sending already."""


class SenderProcess:
    """One process that sends, for the length of a `with` block, which raises SendersBusyError at its beginning if there
    are enough of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def __enter__(self) -> "SenderProcess":
        if not _slots.acquire(blocking=False):
            raise SendersBusyError
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.kill()
        finally:
            _slots.release()

    def carry_out(self, order: Mapping[str, Any], seconds: float) -> str:
        """Return the answer to an order (see `child`). Raises DeliveryError, after `seconds` at the latest; the process
        is killed then, and another one carries out the next order."""
        deadline = time.monotonic() + seconds
        if self._connection is None:
            self._start()
        told = {**order, "hosts": settings.NOTICE_HOSTS, "seconds": seconds}
        try:
            answer = self._ask(json.dumps(told).encode() + b"\n", deadline)
        except TimeoutError:
            self.kill()
            raise DeliveryError("CHANNEL_TIMED_OUT", seconds=int(seconds)) from None
        except (OSError, ValueError):
            raise DeliveryError("CHANNEL_SENDER_ENDED", status=str(self.kill())) from None
        if "code" in answer:
            raise DeliveryError(answer["code"], answer=answer["answer"], lasting=answer["lasting"], **answer["params"])
        return str(answer["answer"])

    def _ask(self, line: bytes, deadline: float) -> dict[str, Any]:
        """Send an order and return its answer. Raises TimeoutError, and ConnectionError or ValueError if the process
        has ended."""
        assert self._connection is not None
        self._connection.settimeout(max(0.001, deadline - time.monotonic()))
        self._connection.sendall(line)
        answer = b""
        while not answer.endswith(b"\n"):
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            part = self._connection.recv(MAX_ANSWER_BYTES)
            if not part or len(answer) > MAX_ANSWER_BYTES:
                raise ConnectionError
            answer += part
        found: dict[str, Any] = json.loads(answer)
        return found

    def _start(self) -> None:
        """Start the process. It inherits one socket, and of the environment what the libraries need: no setting and no
        secret. No proxy settings either, because the target of a connection through a proxy cannot be checked."""
        env = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        env |= {"HOME": "/nonexistent", "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-c", _START_CODE, str(_ROOT)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )

    def kill(self) -> int | None:
        """Kill the process and return its exit status; None if there is none, or it has not ended within a second."""
        if self._connection is not None:
            self._connection.close()
        process, self._process, self._connection = self._process, None, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1)
        return None
