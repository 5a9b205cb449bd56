"""Commands in a pod over a WebSocket (`pods/exec`), as clients see them. Of each message the first byte is its channel:
0 standard input, 1 output, 2 errors, 3 how it ended, a Status; of `v5.channel.k8s.io` also 255, which ends the channel
that its second byte names (staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go). The first message is
an empty one (staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/websocket.go, createWebSocketStreams).

What is wrong with the request the API server answers itself (pkg/registry/core/pod/strategy.go, streamLocation). What
the kubelet refuses (pkg/kubelet/kubelet_pods.go, GetExec) it answers to `v4` instead of the handshake; `v5` is
translated by the API server (staging/src/k8s.io/apiserver/pkg/util/proxy/streamtranslator.go), which has accepted
by then and says it on channel 3.

A command's process has what its container's has. Where the client goes, its standard input ends, and nothing else."""

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from tests.fakes import upgrades
from tests.fakes.kubernetes import errors
from tests.fakes.kubernetes.errors import Refused, bad_request
from tests.fakes.upgrades import Talk

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
IN, OUT, ERR, STATUS, CLOSE = 0, 1, 2, 3, 255


class Begin(Protocol):
    """Raises Refused: a kubelet's no."""

    def __call__(self, command: Sequence[str]) -> "subprocess.Popen[bytes]": ...


def serve(
    handler: BaseHTTPRequestHandler, query: Mapping[str, list[str]], begin: Begin, known: Sequence[str] = (V5, V4)
) -> None:
    protocol = errors.protocol(handler, known)
    if query.get("tty") == ["true"]:
        raise bad_request("this fake gives no terminals")
    if not any(query.get(name) == ["true"] for name in ("stdin", "stdout", "stderr")):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    talk = None
    try:
        if protocol == V5:
            talk = upgrades.upgrade(handler, protocol)
        process = begin(query.get("command", []))
    except Refused as refused:
        if talk is None:
            raise
        with contextlib.suppress(OSError):
            talk.say(STATUS, json.dumps(refused.status).encode())
            talk.close()
        return
    talk = talk or upgrades.upgrade(handler, protocol)
    with contextlib.suppress(OSError), process:
        _carry(talk, process, v5=protocol == V5)


def _carry(talk: Talk, process: "subprocess.Popen[bytes]", *, v5: bool) -> None:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    talk.say(OUT, b"")
    outputs = {process.stdout.fileno(): OUT, process.stderr.fileno(): ERR}
    while outputs:
        ready, _, _ = select.select([talk.outside, *outputs], [], [])
        for one in ready:
            if one is talk.outside:
                for channel, data in talk.heard():
                    if channel == IN and not process.stdin.closed:
                        with contextlib.suppress(BrokenPipeError):
                            process.stdin.write(data)
                            process.stdin.flush()
                    elif v5 and channel == CLOSE and data[:1] == bytes([IN]):
                        process.stdin.close()
            elif data := os.read(one, 1 << 16):
                talk.say(outputs[one], data)
            else:
                del outputs[one]
    talk.say(STATUS, json.dumps(_ended(process.wait())).encode())
    talk.close()


def _ended(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    shown = code if code > 0 else 128 - code
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {shown}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(shown)}]},
    }  # fmt: skip
