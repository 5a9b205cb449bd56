"""Runs one node of a job as the main process of a pod: `python -m fermi.runner.pod <job folder> <run folder>`.

Standard library only, Python 3.9 or later: the pod's image has none of our packages. The job folder (a ConfigMap) has
`job.json` and the plan's files; FERMI_RANKS has what differs between ranks. Waits until all nodes are ready
(`barrier.py`), starts one process per GPU, and exits with the code of the rank that failed first (128 + n for signal
n), or 0; but with 143 if it was asked to end (SIGTERM) and running ranks then exit with 0, because they are incomplete.

A pod has one output, and its ranks have one each. Every line of it is one of

    3:10240:a line of rank 3, which begins at byte 10240 of the output of rank 3
    3+10240:a piece of such a line: it goes on, or the rank is in the middle of it
    @{"ranks": [{"rank": 3, "pid": 17, "state": "running", …}]}           state of the ranks, at each change; before
                                                                          they start with the current step ("doing")
    @{"pulse": [{"rank": 3, "step": 41, …}]}                              their progress, every ten seconds
    @{"telemetry": [{"at": …, "values": {"cpu": 7.5, …}}]}                what they use, every quarter of a minute

so a reader can tell them apart, resume anywhere, and neither lose nor duplicate a byte. Messages of the runner itself
are lines of the node's first rank. When the node ends, the termination message reports the result, in JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from typing import Any

from fermi.runner import barrier, processes
from fermi.runner.exit_codes import NO_RANK_STARTED, to_shell_code
from fermi.runner.node import Node
from fermi.runner.output_pipes import OutputPipes, write_all
from fermi.runner.prepare import Rendezvous, prepare_node
from fermi.runner.stop_requests import StopRequests

MAX_PIECE_BYTES = 8192
"""Bytes of an unfinished line that are forwarded; container runtimes split lines at 16 KiB."""
UNFINISHED_SECONDS = 0.2
"""How long half a line waits for its other half (a progress bar, a prompt)."""
PULSE_SECONDS = 10.0
NODE_ONLY_FIELDS = ("local_rank", "start_time")  # of a rank's entry: what only its own node has a use for
TAIL_BYTES = 1800  # bytes of a rank's last output in the termination message, of which Kubernetes keeps 4096
MAX_MESSAGE_BYTES = 4000


class PodOutput:
    """Writes the output of a rank as marked lines."""

    def __init__(self, rank: int) -> None:
        self.rank, self.offset = rank, 0
        self.rest = b""
        self.since = 0.0
        self.tail = b""

    def write(self, data: bytes) -> None:
        """Forward `data`; empty data means the end."""
        if not data:
            self._send_rest()
            return
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        self.write_frames(data)

    def write_frames(self, data: bytes) -> None:
        """Forward `data` that is not among the rank's last words."""
        if not self.rest:
            self.since = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        pieces = []
        for line in lines:
            while len(line) > MAX_PIECE_BYTES:
                pieces.append(self._mark(b"+", line[:MAX_PIECE_BYTES]))
                line = line[MAX_PIECE_BYTES:]
            pieces.append(self._mark(b":", line))
        while len(self.rest) > MAX_PIECE_BYTES:
            pieces.append(self._mark(b"+", self.rest[:MAX_PIECE_BYTES]))
            self.rest = self.rest[MAX_PIECE_BYTES:]
        write_all(1, b"".join(pieces))

    def flush(self) -> None:
        """Send half a line that has waited long enough."""
        if time.monotonic() - self.since >= UNFINISHED_SECONDS:
            self._send_rest()

    def _send_rest(self) -> None:
        if self.rest:
            write_all(1, self._mark(b"+", self.rest))
            self.rest = b""

    def write_message(self, text: str) -> None:
        """Write a message of the runner."""
        self.write(f"fermi: {text}\n".encode())

    def _mark(self, kind: bytes, text: bytes) -> bytes:
        begin = self.offset
        self.offset += len(text) + (kind == b":")
        return b"%d%b%d:%b\n" % (self.rank, kind, begin, text)


def write_status(status: dict[str, Any]) -> bool:
    """Write the status; returns True, because it needs no second attempt."""
    ranks = [{key: entry[key] for key in entry if key not in NODE_ONLY_FIELDS} for entry in status["ranks"]]
    doing = {"doing": status["doing"]} if status.get("doing") else {}
    write_all(1, b"@" + json.dumps({"ranks": ranks, **doing}).encode() + b"\n")
    return True


def write_pulses(pulses: list[dict[str, Any]]) -> None:
    """Write the ranks' pulses."""
    write_all(1, b"@" + json.dumps({"pulse": pulses}).encode() + b"\n")


def write_telemetry(samples: list[dict[str, Any]]) -> None:
    """Write one line for each sample: container runtimes split longer ones."""
    for sample in samples:
        write_all(1, b"@" + json.dumps({"telemetry": [sample]}).encode() + b"\n")


def report_end(node: Node, lines: dict[int, PodOutput]) -> int:
    """Write the termination message and return the exit code."""
    ranks = [[entry["rank"], entry["exit_code"], entry["ended_at"]] for entry in node.ranks]
    asked = [entry["rank"] for entry in node.ranks if entry["asked"]]
    said: dict[str, Any] = {"ranks": ranks, **({"asked": asked} if asked else {})}
    if why := node.status.get("cause"):
        said["cause"], said["about"] = why["code"], {key: why[key] for key in why if key != "code"}
    if node.status["asked"]:
        said["terminated"] = node.status["asked_at"]
    culprit = node.first_to_fail()
    if culprit is None:
        ended = all(entry["state"] == "exited" for entry in node.ranks)
        if "cause" in said:
            return write_termination_message(said, NO_RANK_STARTED)
        return write_termination_message(
            said, 0 if ended and not node.status["asked"] else to_shell_code(-signal.SIGTERM)
        )
    tail = lines[culprit["rank"]].tail.decode(errors="replace").strip()
    why = {name: culprit[name] for name in ("error", "kill") if culprit[name]}
    return write_termination_message(
        {"rank": culprit["rank"], **said, **why, "tail": tail}, to_shell_code(culprit["exit_code"])
    )


def write_termination_message(message: dict[str, Any], code: int) -> int:
    """Write the termination message and return `code`. Kubernetes cuts the message at 4096 bytes, so long texts are
    shortened before, at their beginning."""
    for kept in (TAIL_BYTES, 900, 300, 100):
        if len(json.dumps(message)) < MAX_MESSAGE_BYTES:
            break
        for texts, name in _find_long_texts(message):
            texts[name] = texts[name][-kept:]
    for name in ("ranks", "asked", "tail", "about"):
        if len(json.dumps(message)) >= MAX_MESSAGE_BYTES:
            message.pop(name, None)
    with contextlib.suppress(OSError), open(os.environ["FERMI_TERMINATION_LOG"], "w", encoding="utf-8") as file:
        json.dump(message, file)
    return code


def _find_long_texts(message: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the parts of the message with texts that may be long, and the names of these."""
    about = message.get("about") or {}
    return [(part, name) for part, name in ((message, "tail"), *((about, name) for name in about))
            if isinstance(part.get(name), str)]  # fmt: skip


def main(job_dir: str, run_dir: str) -> int:
    """Run the node and return the exit code."""
    processes.deny_tracing()
    with open(os.path.join(job_dir, "job.json"), encoding="utf-8") as file:
        order = json.load(file)
    node_rank = int(os.environ["NODE_RANK"])
    stops = StopRequests(signal.SIGTERM)
    stops.listen()
    os.makedirs(os.path.join(run_dir, "files"), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.copytree(os.path.join(job_dir, "files"), os.path.join(run_dir, "files"), dirs_exist_ok=True)
    spec = {
        "name": order["name"], "node_rank": node_rank, "cwd": order.get("cwd") or os.getcwd(),
        "ranks": json.loads(os.environ["FERMI_RANKS"]),
        "command": order["command"], "env": order["env"], "stop_signal": order["stop_signal"],
        "grace_seconds": order["grace_seconds"],
        "bounds": order.get("bounds"), "secrets": order.get("secrets", ()),
        "pulse": order.get("pulse", False), "hang_seconds": order.get("hang_seconds"),
        "processes": order.get("processes", "gpu"), "resumes": order.get("resumes", False),
        "resumes_in_place": order.get("resumes_in_place", False),
    }  # fmt: skip
    if code := order.get("code"):
        spec["code"] = code
    lines = {rank["rank"]: PodOutput(rank["rank"]) for rank in spec["ranks"]}
    first = next(iter(lines.values()))
    try:
        prepare_node(spec, _build_rendezvous(order, node_rank), first.write_message, lambda: stops.early() is not None)
    except barrier.RendezvousError as error:
        first.write_message(f"gave up: {error.cause}: {error.detail}")
        return write_termination_message(
            {"cause": error.cause, "detail": error.detail, "about": error.about}, NO_RANK_STARTED
        )
    takers = {rank: one.write for rank, one in lines.items()}
    frames = {rank: one.write_frames for rank, one in lines.items()}
    pipes = OutputPipes(takers, [one.flush for one in lines.values()], frames)
    node = Node(
        spec,
        stops,
        write_status,
        pipes,
        report_pulses=write_pulses,
        tell_seconds=PULSE_SECONDS,
        tell_used=write_telemetry,
    )
    node.run()
    for one in lines.values():
        one.write(b"")  # frames of ended ranks
    return report_end(node, lines)


def _build_rendezvous(order: dict[str, Any], node_rank: int) -> Rendezvous:
    alone = order["nodes"] == 1
    head = os.environ.get("FERMI_POD_IP") or "127.0.0.1" if alone or node_rank == 0 else order["head"]
    patience = float(os.environ.get("FERMI_PATIENCE_SECONDS") or barrier.DEFAULT_TIMEOUT_SECONDS)
    return Rendezvous(order["name"], node_rank, order["nodes"], head, order["port"], patience)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
