"""Commands in a pod over a WebSocket (`pods/exec`), as clients see them. Of each message the first byte is its channel:
0 standard input, 1 output, 2 errors, 3 how it ended, a Status; of `v5.channel.k8s.io` also 255, which ends the channel
that its second byte names (staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go). The first message is
an empty one (staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/websocket.go, createWebSocketStreams).

What is wrong with the request the API server answers itself (pkg/registry/core/pod/strategy.go, streamLocation). What
the kubelet refuses (pkg/kubelet/kubelet_pods.go, GetExec) it answers to `v4` instead of the handshake; `v5` is
translated by the API server (staging/src/k8s.io/apiserver/pkg/util/proxy/streamtranslator.go), which has accepted
by then and says it on channel 3.

What its container's runtime refuses is said on channel 3 (staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/
exec.go, ServeExec).

A command's process has what its container's has. Where the client goes, its standard input ends, and nothing else; what
it goes on writing is read by nobody (containerd, internal/cri/io/exec_io.go: Attach;
https://github.com/kubernetes/kubernetes/issues/89031). A stream ends when nobody has the command's output open any more
(containerd, internal/cri/server/container_execsync.go: drainExecSyncIO, by default without a limit). One to a node that
does not answer says nothing."""

import contextlib
import json
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from tests.fakes import upgrades
from tests.fakes.kubernetes import errors
from tests.fakes.kubernetes.errors import Refused, bad_request
from tests.fakes.kubernetes.kubelet.containers import Execution
from tests.fakes.kubernetes.kubelet.inside import NotBegunError
from tests.fakes.upgrades import Talk

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
IN, OUT, ERR, STATUS, CLOSE = 0, 1, 2, 3, 255
LOOK_SECONDS = 0.02


class Begin(Protocol):
    """Raises Refused, a kubelet's no, and NotBegunError."""

    def __call__(self, command: Sequence[str]) -> Execution: ...


def serve(
    handler: BaseHTTPRequestHandler, query: Mapping[str, list[str]], begin: Begin, answers: Callable[[], bool],
    known: Sequence[str] = (V5, V4),
) -> None:  # fmt: skip
    """`answers`: whether the pod's node does."""
    protocol = errors.protocol(handler, known)
    if query.get("tty") == ["true"]:
        raise bad_request("this fake gives no terminals")
    if not any(query.get(name) == ["true"] for name in ("stdin", "stdout", "stderr")):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    talk = upgrades.upgrade(handler, protocol) if protocol == V5 else None
    command = query.get("command", [])
    try:
        process = begin(command)
    except Refused as refused:
        if talk is None:
            raise
        return _refuse(talk, refused.status)
    except NotBegunError as error:
        return _refuse(talk or upgrades.upgrade(handler, protocol), error.status)
    stream = _Stream(process, answers, v5=protocol == V5)
    try:
        stream.carry(talk or upgrades.upgrade(handler, protocol), command)
    except OSError:
        stream.leave()
    finally:
        process.close()


def _refuse(talk: Talk, status: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        talk.say(OUT, b"")
        talk.say(STATUS, json.dumps(status).encode())
        talk.close()


class _Stream:
    def __init__(self, process: Execution, answers: Callable[[], bool], *, v5: bool) -> None:
        self.process, self.answers, self.v5 = process, answers, v5
        self._unread, self._ends = b"", False
        os.set_blocking(process.stdin, False)

    def carry(self, talk: Talk, command: Sequence[str]) -> None:
        """Until the command's output ends. Raises OSError where the client has gone."""
        talk.say(OUT, b"")
        outputs = {self.process.stdout: OUT, self.process.stderr: ERR}
        while outputs:
            heard = [] if self._unread else [talk.outside]
            ready, writable, _ = select.select([*heard, *outputs], [self.process.stdin] if self._unread else [], [])
            self._wait_for_node(talk)
            if writable:
                self._write()
            for one in ready:
                if one is talk.outside:
                    self._hear(talk)
                elif data := os.read(one, 1 << 16):
                    talk.say(outputs[one], data)
                else:
                    del outputs[one]
        code = self.process.wait()
        self._wait_for_node(talk)
        talk.say(STATUS, json.dumps(_ended(command, code)).encode())
        talk.close()

    def leave(self) -> None:
        """The process reads what had come, and the end of its input. Returns when it has ended."""
        self._ends = True
        os.set_blocking(self.process.stdin, True)
        self._write()
        self.process.wait()

    def _hear(self, talk: Talk) -> None:
        for channel, data in talk.heard():
            if channel == IN and not self._ends:
                self._unread += data
            elif self.v5 and channel == CLOSE and data[:1] == bytes([IN]):
                self._ends = True
        self._write()

    def _write(self) -> None:
        """What the process takes of its input now."""
        if self.process.stdin_ended:
            return
        try:
            while self._unread:
                self._unread = self._unread[os.write(self.process.stdin, self._unread) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self._unread = b""
        if self._ends:
            self.process.end_input()

    def _wait_for_node(self, talk: Talk) -> None:
        while not self.answers():
            if talk.gone():
                raise ConnectionError("gone")
            time.sleep(LOOK_SECONDS)


def _ended(command: Sequence[str], code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    shown = code if code > 0 else 128 - code
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: error executing command [{' '.join(command)}], "
                   f"exit code {shown}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(shown)}]},
    }  # fmt: skip
