"""Commands in a pod over a WebSocket (`pods/exec`), as clients see them. Of each message the first byte is its channel:
0 standard input, 1 output, 2 errors, 3 how it ended, a Status; of `v5.channel.k8s.io` also 255, which ends the channel
that its second byte names (staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go). The first message is
an empty one (staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/websocket.go, createWebSocketStreams).

What is wrong with the request the API server answers itself (pkg/registry/core/pod/strategy.go, streamLocation). `v4`
goes through it to the container runtime. `v5` ends at the kubelet from Kubernetes 1.36 on (pkg/features/
kube_features.go: ExtendWebSocketsToKubelet), before at the API server, which has accepted by the time it asks the
kubelet (staging/src/k8s.io/apiserver/pkg/util/proxy/streamtranslator.go): what the kubelet refuses (pkg/kubelet/
kubelet_pods.go, GetExec) it then says on channel 3. What the runtime refuses is always said there
(staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/exec.go, ServeExec).

A command's process has what its container's has. Where a stream breaks, containerd kills the command if its own
connection breaks with it (internal/cri/server/container_execsync.go, execInternal): always where `v4` is not closed in
due form; of `v5` where the process that translates it ends. Otherwise its standard input ends, and nothing else; what
it goes on writing is read by nobody (internal/cri/io/exec_io.go, Attach). No other process is touched. A stream ends
when nobody has the command's output open any more (drainExecSyncIO, by default without a limit), and when nothing has
passed for four hours (containerd: stream_idle_timeout; streamtranslator.go: defaultIdleConnectionTimeout). One to a
node that does not answer says nothing. All of this was measured on Kubernetes 1.36 with containerd 2.1."""

import contextlib
import json
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
IDLE_SECONDS = 4 * 3600.0
MESSAGE_BYTES = 32 << 10


class Begin(Protocol):
    """Raises Refused, a kubelet's no, and NotBegunError."""

    def __call__(self, command: Sequence[str]) -> Execution: ...


@dataclass(frozen=True)
class Terms:
    """`answers`: whether the pod's node does. `severed`: whether the API server or the kubelet has ended the stream, by
    its own end. `known`: protocols. `kubelet_speaks`: `v5`, instead of the API server. `idle`: seconds without a
    message until a stream is cut."""

    answers: Callable[[], bool]
    severed: Callable[[], bool]
    known: Sequence[str] = (V5, V4)
    kubelet_speaks: bool = False
    idle: Callable[[], float] = lambda: IDLE_SECONDS


def serve(handler: BaseHTTPRequestHandler, query: Mapping[str, list[str]], begin: Begin, terms: Terms) -> None:
    protocol = errors.protocol(handler, terms.known)
    if query.get("tty") == ["true"]:
        raise bad_request("this fake gives no terminals")
    if not any(query.get(name) == ["true"] for name in ("stdin", "stdout", "stderr")):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    talk = upgrades.upgrade(handler, protocol) if protocol == V5 and not terms.kubelet_speaks else None
    command = query.get("command", [])
    try:
        process = begin(command)
    except Refused as refused:
        if talk is None:
            raise
        passed_on = errors.internal(f"unable to upgrade connection: {refused}").status
        return _refuse(talk, passed_on if refused.plain else refused.status)
    except NotBegunError as error:
        why = f"error executing command in container: failed to exec in container: {error}"
        status = errors.internal(why if protocol == V4 else f"{errors.internal(why)}").status
        return _refuse(talk or upgrades.upgrade(handler, protocol), status)
    talk = talk or upgrades.upgrade(handler, protocol)
    stream = _Stream(process, terms, v5=protocol == V5)
    try:
        stream.carry(talk, command)
    except OSError:
        talk.cut()
        if not talk.said_all and (protocol == V4 or terms.severed()):
            process.kill()
        stream.leave()
    finally:
        process.close()


def _refuse(talk: Talk, status: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        talk.send_message(OUT, b"")
        talk.send_message(STATUS, json.dumps(status).encode())
        talk.close()


class _Stream:
    def __init__(self, process: Execution, terms: Terms, *, v5: bool) -> None:
        self.process, self.terms, self.v5 = process, terms, v5
        self._unread, self._ends = b"", False
        os.set_blocking(process.stdin, False)

    def carry(self, talk: Talk, command: Sequence[str]) -> None:
        """Until the command's output ends. Raises OSError where the stream does before."""
        talk.send_message(OUT, b"")
        outputs = {self.process.stdout: OUT, self.process.stderr: ERR}
        while outputs:
            heard = [] if self._unread else [talk.outside]
            unread = [self.process.stdin] if self._unread else []
            ready, writable, _ = select.select([*heard, *outputs], unread, [], self.terms.idle())
            self._wait_for_node(talk)
            if not ready and not writable:
                raise ConnectionError("nothing has passed for long")
            if writable:
                self._write()
            for one in ready:
                if one is talk.outside:
                    self._hear(talk)
                elif data := os.read(one, MESSAGE_BYTES):
                    talk.send_message(outputs[one], data)
                else:
                    del outputs[one]
        code = self.process.wait()
        self._wait_for_node(talk)
        talk.send_message(STATUS, json.dumps(_ended(command, code, v5=self.v5)).encode())
        talk.close()

    def leave(self) -> None:
        """The process reads what had come, and the end of its input. Returns when it has ended."""
        self._ends = True
        os.set_blocking(self.process.stdin, True)
        self._write()
        self.process.wait()

    def _hear(self, talk: Talk) -> None:
        for channel, data in talk.receive():
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
        while not self.terms.answers():
            if talk.gone():
                raise ConnectionError("gone")
            time.sleep(LOOK_SECONDS)


def _ended(command: Sequence[str], code: int, *, v5: bool) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    shown = code if code > 0 else 128 - code
    said = f"error executing command [{' '.join(command)}], exit code {shown}"
    said = f"command terminated with exit code {shown}" if v5 else said
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: {said}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(shown)}]},
    }  # fmt: skip
