"""One node of a job as the main process of a pod: `python -m fermi.runner.pod <job folder> <run folder>`.

Standard library only, Python 3.9 or later: the pod's image has nothing of ours. The job folder (a ConfigMap) holds
`job.json` and the plan's files; FERMI_RANKS holds what is the ranks' own. Waits until all nodes are there (`meet.py`),
starts one process per GPU, and ends with the exit code of the rank that failed first (128 + n for signal n), or 0; but
with 143 when it was asked to end (SIGTERM) and ranks that ran then exit with 0: they have not come to their end.

A pod has one output, and its ranks have one each; every line of it is one of

    3:10240:a line of rank 3, which begins at byte 10240 of what rank 3 has printed
    3+10240:a piece of such a line: it goes on, or the rank is in the middle of it
    @{"ranks": [{"rank": 3, "pid": 17, "state": "running", …}]}           how the ranks are, at each change

so whoever follows it can tell them apart, begin anywhere again, and neither lose nor double a byte. What the runner
itself has to say are lines of the node's first rank. When the node ends, the termination message says how, in JSON.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import Any

from fermi.runner import meet
from fermi.runner.exits import GAVE_UP
from fermi.runner.late import Late, decode
from fermi.runner.node import Node, Paths, keep_ranks_out

PIECE = 8192
"""Bytes of an unfinished line that are sent on; container runtimes split lines at 16 KiB."""
UNFINISHED_SECONDS = 0.2
"""How long half a line waits for its other half (a progress bar, a prompt)."""
TAIL = 1800  # bytes of a rank's last output in the termination message, of which Kubernetes keeps 4096


class Output:
    """What a rank prints, on its way from the rank's pipe to ours."""

    def __init__(self, rank: int) -> None:
        self.rank, self.offset = rank, 0
        self.pipe: int | None = None
        self.rest = b""
        self.since = 0.0
        self.tail = b""

    def open(self) -> int:
        self.pipe, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)
        return write

    def read(self) -> None:
        """Takes what there is; forgets the pipe at its end."""
        assert self.pipe is not None
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            os.close(self.pipe)
            self.pipe = None
        self.take(data)

    def take(self, data: bytes) -> None:
        if data and not self.rest:
            self.since = time.monotonic()
        self.tail = (self.tail + data)[-TAIL:]
        *lines, self.rest = (self.rest + data).split(b"\n")
        pieces = []
        for line in lines:
            while len(line) > PIECE:
                pieces.append(self._mark(b"+", line[:PIECE]))
                line = line[PIECE:]
            pieces.append(self._mark(b":", line))
        while len(self.rest) > PIECE:
            pieces.append(self._mark(b"+", self.rest[:PIECE]))
            self.rest = self.rest[PIECE:]
        emit(b"".join(pieces))

    def flush(self) -> None:
        """Sends half a line that has waited long enough."""
        if self.rest and (self.pipe is None or time.monotonic() - self.since >= UNFINISHED_SECONDS):
            piece, self.rest = self.rest, b""
            emit(self._mark(b"+", piece))

    def _mark(self, kind: bytes, text: bytes) -> bytes:
        begin = self.offset
        self.offset += len(text) + (kind == b":")
        return b"%d%b%d:%b\n" % (self.rank, kind, begin, text)


def emit(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:
            select.select([], [1], [])
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):  # nobody reads any more; the ranks go on
                return
            raise


class PodNode(Node):
    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(spec, Paths(os.path.join(spec["cwd"], "fermi-node.json")), os.open(os.devnull, os.O_RDONLY))
        self.outputs = {rank["rank"]: Output(rank["rank"]) for rank in spec["ranks"]}
        self.first = self.outputs[spec["ranks"][0]["rank"]]

    def say(self, text: str) -> None:
        self.first.take(f"fermi: {text}\n".encode())

    def save(self, state: str) -> None:
        self.status["state"] = state
        keys = ("rank", "pid", "state", "exit_code", "ended_at", "asked", "still_since")
        ranks = [{key: entry[key] for key in keys} for entry in self.ranks]
        emit(b"@" + json.dumps({"ranks": ranks}).encode() + b"\n")

    def open_output(self, rank: dict[str, Any]) -> int:
        return self.outputs[rank["rank"]].open()

    def sleep(self, wake: int) -> None:
        self.carry(wake, self.seconds_to_sleep())

    def obey_stop(self) -> None:
        """The kubelet says so, with SIGTERM."""

    def carry(self, wake: int | None, seconds: float) -> None:
        """Takes what the ranks print until nothing comes for a moment, or a signal does."""
        pipes = {output.pipe: output for output in self.outputs.values() if output.pipe is not None}
        if any(output.rest for output in pipes.values()):
            seconds = min(seconds, UNFINISHED_SECONDS)
        ready, _, _ = select.select([*pipes, *([] if wake is None else [wake])], [], [], seconds)
        for pipe in ready:
            if pipe in pipes:
                pipes[pipe].read()
        for output in self.outputs.values():
            output.flush()

    def sweep(self) -> None:
        """Once nothing of the ranks lives, their pipes have an end; a moment suffices, should a stranger hold one."""
        super().sweep()
        end = time.monotonic() + 5
        while any(output.pipe is not None for output in self.outputs.values()) and time.monotonic() < end:
            self.carry(None, 0.1)
        for output in self.outputs.values():
            output.pipe = None
            output.flush()

    def report(self) -> int:
        """Writes the termination message and returns the exit code."""
        ranks = [[entry["rank"], entry["exit_code"], entry["ended_at"]] for entry in self.ranks]
        asked = [entry["rank"] for entry in self.ranks if entry["asked"]]
        said: dict[str, Any] = {"ranks": ranks, **({"asked": asked} if asked else {})}
        if why := self.status.get("cause"):
            said["cause"], said["about"] = why["code"], {key: why[key] for key in why if key != "code"}
        if self.status["asked"]:
            said["terminated"] = self.status["asked_at"]
        culprit = self.first_to_fail()
        if culprit is None:
            ended = all(entry["state"] == "exited" for entry in self.ranks)
            if "cause" in said:
                return terminate(said, GAVE_UP)
            return terminate(said, 0 if ended and not self.status["asked"] else 128 + signal.SIGTERM)
        tail = self.outputs[culprit["rank"]].tail.decode(errors="replace").strip()
        code = culprit["exit_code"]
        return terminate({"rank": culprit["rank"], **said, "tail": tail}, code if code > 0 else 128 - code)


def terminate(message: dict[str, Any], code: int) -> int:
    """Kubernetes cuts the message at 4096 bytes: what is long is shortened before."""
    for kept in (TAIL, 900, 300, 0):
        if "tail" in message:
            message["tail"] = message["tail"][len(message["tail"]) - kept :] if kept else ""
        if len(json.dumps(message)) < 4000:
            break
    else:
        for name in ("ranks", "asked", "about"):
            message.pop(name, None)
    with contextlib.suppress(OSError), open(os.environ["FERMI_TERMINATION_LOG"], "w", encoding="utf-8") as file:
        json.dump(message, file)
    return code


def main(job_dir: str, run_dir: str) -> int:
    keep_ranks_out()
    with open(os.path.join(job_dir, "job.json"), encoding="utf-8") as file:
        order = json.load(file)
    ranks = json.loads(os.environ["FERMI_RANKS"])
    node_rank = int(os.environ["NODE_RANK"])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    os.makedirs(os.path.join(run_dir, "files"), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.copytree(os.path.join(job_dir, "files"), os.path.join(run_dir, "files"), dirs_exist_ok=True)
    spec = {
        "name": order["name"], "node_rank": node_rank, "cwd": os.getcwd(), "ranks": ranks,
        "stop_signal": order["stop_signal"], "grace_seconds": order["grace_seconds"],
    }  # fmt: skip
    node = PodNode(spec)
    try:
        head = _meet(order, node_rank, node, stopped)
    except meet.GaveUp as error:
        node.say(f"gave up: {error.cause}: {error.detail}")
        return terminate({"cause": error.cause, "detail": error.detail, "about": error.about}, GAVE_UP)
    if stopped:
        return terminate({"ranks": [], "terminated": time.time()}, 128 + signal.SIGTERM)
    known = {Late.HEAD_HOST: head, Late.PYTHON: sys.executable}
    env = {name: decode(value, known) for name, value in order["env"].items()}
    interface = meet.interface_to(head)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if interface and not os.environ.get(name):
            env[name] = interface
    spec.update(command=[decode(word, known) for word in order["command"]], env=env)
    node.run()
    return node.report()


def _meet(order: dict[str, Any], node_rank: int, node: PodNode, stopped: list[int]) -> str:
    own = os.environ.get("FERMI_POD_IP") or "127.0.0.1"
    patience = float(os.environ.get("FERMI_PATIENCE_SECONDS") or meet.PATIENCE_SECONDS)
    if order["nodes"] == 1:
        return own
    if node_rank == 0:
        meet.as_head(order["name"], order["nodes"], order["port"], node.say, lambda: bool(stopped), patience)
        return own
    return meet.as_member(
        order["name"], node_rank, order["head"], order["port"], node.say, lambda: bool(stopped), patience
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
