"""One node of a job in the foreground, for people who start by hand. Standard library only, Python 3.9 or later.

    python -m fermi.runner.hand --rank 0 RANK=0 LOCAL_RANK=0 --rank 1 RANK=1 LOCAL_RANK=1 -- python -u train.py

Starts one process for each --rank, with our own environment and what follows it, and ends with the exit code of the
rank that failed first (128 + n for signal n), or 0. With `--node-rank K --nodes N --head HOST --port PORT` it first
waits until all N nodes are there (`meet.py`), so that no rank waits for a node that somebody has yet to start.

Ctrl-C, SIGTERM or SIGHUP ask the ranks to end (SIGTERM, then SIGKILL after the grace); a second one kills them at once.
With --until-eof so does the end of standard input: what starts us over ssh is gone then.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

from fermi.runner import meet, ports
from fermi.runner.exits import GAVE_UP, shown
from fermi.runner.node import Node, Paths, adopt_orphans
from fermi.runner.stillness import Stillness, never_end

LONGEST_LINE = 1 << 16
EMPTY = 1 << 16


@dataclass(frozen=True)
class Meeting:
    """Where the nodes of a job meet before any of them starts a rank."""

    name: str
    node_rank: int
    nodes: int
    head: str
    port: int
    patience: float = meet.PATIENCE_SECONDS


class PortTaken(Exception):
    """Something already listens where rank 0 is to."""

    def __init__(self, port: int) -> None:
        self.port, self.holder = port, ports.holder(port)
        super().__init__(f"port {port} is in use" + (f" by {self.holder}" if self.holder else ""))


class Output:
    """What a rank prints, on its way from the rank's pipe to the terminal, line by line, and to its file."""

    def __init__(self, rank: int, mark: str | None, folder: str) -> None:
        self.rank, self.rest = rank, b""
        self.mark = None if mark is None else mark.format(rank=rank).encode()
        self.pipe: int | None = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file = os.open(os.path.join(folder, f"{rank}.log"), flags, 0o640) if folder else None

    def open(self) -> int:
        self.pipe, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)
        return write

    def read(self) -> None:
        """Takes what there is; forgets the pipe at its end."""
        assert self.pipe is not None
        try:
            data = os.read(self.pipe, EMPTY)
        except BlockingIOError:
            return
        if self.file is not None:
            _write(self.file, data)
        if self.mark is not None:
            self.show(self.mark, data)
        if not data:
            os.close(self.pipe)
            self.pipe = None

    def show(self, mark: bytes, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        if self.rest and (not data or len(self.rest) > LONGEST_LINE):
            lines, self.rest = [*lines, self.rest], b""
        _write(1, b"".join(mark + line + b"\n" for line in lines))


def _write(descriptor: int, data: bytes) -> None:
    """A terminal that is gone, or a full disk, does not end the training."""
    with contextlib.suppress(OSError):
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                select.select([], [descriptor], [])


class HandNode(Node):
    """`mark`: what stands before each line of a rank, such as `[rank {rank}] `; None: its lines are not shown. `whole`:
    there are no other nodes."""

    ends_on: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self, spec: dict[str, Any], mark: str | None, folder: str, *, until_eof: bool, whole: bool) -> None:
        super().__init__(spec, Paths(os.path.join(spec["cwd"], "fermi-node.json")), os.open(os.devnull, os.O_RDONLY))
        if folder:
            os.makedirs(folder, exist_ok=True)
        self.outputs = {rank["rank"]: Output(rank["rank"], mark, folder) for rank in spec["ranks"]}
        self.until_eof, self.whole, self.asked_by, self.never_end = until_eof, whole, 0, False
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
            self.ends_on = (signal.SIGTERM, signal.SIGINT)

    def save(self, state: str) -> None:
        """Whoever looks has the terminal."""

    def obey_stop(self) -> None:
        """Signals say so."""

    def open_output(self, rank: dict[str, Any]) -> int:
        return self.outputs[rank["rank"]].open()

    def signalled(self, number: int) -> None:
        self.ask_to_end(0.0 if self.asked_by else self.spec["grace_seconds"])
        self.asked_by = self.asked_by or number

    def note_the_still(self, activity: Stillness) -> None:
        """Nobody else looks, so ranks that never end are ended from here, where all of them are."""
        super().note_the_still(activity)
        left = [entry for entry in self.ranks if entry["state"] == "running"]
        ended = [entry["ended_at"] for entry in self.ranks if entry["state"] == "exited"]  # with 0, or it would be over
        if self.whole and never_end(ended, [entry["still_since"] for entry in left], time.time(), self.last_seconds):
            names = ", ".join(str(entry["rank"]) for entry in left)
            say(f"rank {names} did nothing for {self.last_seconds:g} s after all others had ended with 0: killed")
            self.never_end = True
            self.ask_to_end(0.0)

    def sleep(self, wake: int) -> None:
        self.carry([wake], self.seconds_to_sleep())

    def carry(self, more: list[int], seconds: float) -> None:
        """Takes what the ranks print until something comes, or a signal does."""
        pipes = {output.pipe: output for output in self.outputs.values() if output.pipe is not None}
        watched = [*pipes, *more, *([0] if self.until_eof else [])]
        ready, _, _ = select.select(watched, [], [], seconds)
        for pipe in ready:
            if pipe in pipes:
                pipes[pipe].read()
        if 0 in ready and self.until_eof and not _reads_on(0):
            self.until_eof = False
            self.signalled(signal.SIGHUP)

    def sweep(self) -> None:
        """Once nothing of the ranks lives, their pipes have an end; a moment suffices, should a stranger hold one."""
        super().sweep()
        end = time.monotonic() + 5
        while any(output.pipe is not None for output in self.outputs.values()) and time.monotonic() < end:
            self.carry([], 0.1)

    def result(self) -> int:
        """The exit code, and a line that says whose it is."""
        if self.asked_by:
            return shown(-self.asked_by)
        culprit = self.first_to_fail()
        if culprit is None or (self.never_end and self.ranks[0]["exit_code"] == 0):
            return 0
        code = culprit["exit_code"]
        how = f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
        say(f"rank {culprit['rank']} (pid {culprit['pid']}) {how}; the other ranks of this node were stopped")
        return shown(code)


def _reads_on(descriptor: int) -> bool:
    try:
        return bool(os.read(descriptor, EMPTY))
    except OSError:
        return False


def say(text: str) -> None:
    sys.stderr.write(f"fermi: {text}\n")
    sys.stderr.flush()


def run(
    command: list[str],
    ranks: list[tuple[int, dict[str, str]]],
    *,
    env: dict[str, str] | None = None,
    meeting: Meeting | None = None,
    port: int | None = None,
    mark: str | None = "[rank {rank}] ",
    logs: str = "",
    grace_seconds: float = 30.0,
    until_eof: bool = False,
) -> int:
    """`ranks`: number and environment of each. `port`: where rank 0 of this node will listen, if it is one of them.
    Raises PortTaken and meet.GaveUp before any rank is started."""
    if port is not None and not ports.is_free(port):
        raise PortTaken(port)
    chosen: dict[str, str] = {}
    if meeting is not None:
        address = _meet(meeting, until_eof)
        if address is None:
            return shown(-signal.SIGHUP)
        chosen = _interfaces(address, head=meeting.node_rank == 0)
    spec = {
        "name": "", "node_rank": 0, "command": command, "cwd": os.getcwd(), "env": {**chosen, **(env or {})},
        "ranks": [{"rank": rank, "local_rank": index, "env": own} for index, (rank, own) in enumerate(ranks)],
        "stop_signal": "SIGTERM", "grace_seconds": grace_seconds,
    }  # fmt: skip
    adopt_orphans()
    node = HandNode(spec, mark, logs, until_eof=until_eof, whole=meeting is None)
    node.run()
    return node.result()


def _meet(meeting: Meeting, until_eof: bool) -> str | None:
    """The address of the head; None when standard input ended before all were there."""
    left: list[bool] = []

    def stopped() -> bool:
        if until_eof and not left and select.select([0], [], [], 0)[0] and not _reads_on(0):
            left.append(True)
        return bool(left)

    if meeting.node_rank == 0:
        say(f"waiting for {meeting.nodes - 1} more of {meeting.nodes} nodes on port {meeting.port}")
        try:
            meet.as_head(meeting.name, meeting.nodes, meeting.port, say, stopped, meeting.patience)
        except meet.GaveUp as error:
            if error.cause == "MASTER_PORT_TAKEN":  # since it was looked at
                raise PortTaken(meeting.port) from error
            raise
        return None if left else meeting.head
    address = meet.as_member(
        meeting.name, meeting.node_rank, meeting.head, meeting.port, say, stopped, meeting.patience
    )
    return None if left else address


def _interfaces(address: str, *, head: bool) -> dict[str, str]:
    """Which network interface gloo and NCCL are to bind: the one that reaches the head. Where the head's own name
    leads to the loopback interface (as Debian's /etc/hosts has it), nothing is known."""
    name = meet.interface_to(address)
    if not name or (head and name == "lo" and not _is_loopback(address)):
        return {}
    return {key: name for key in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if not os.environ.get(key)}


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def parse(words: list[str]) -> argparse.Namespace:
    about, layout = __doc__, argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("fermi.runner.hand", description=about, formatter_class=layout)
    add = parser.add_argument
    add("--rank", dest="ranks", nargs="+", action="append", required=True, metavar="N KEY=VALUE")
    add("--name", default="job", help="by which the nodes of one job know each other")
    add("--node-rank", type=int, default=0)
    add("--nodes", type=int, default=1)
    add("--head", default="127.0.0.1", help="host of rank 0")
    add("--port", type=int, required=True, help="where rank 0 listens")
    add("--patience", type=float, default=meet.PATIENCE_SECONDS, help="seconds to wait for the other nodes")
    add("--mark", default="[rank {rank}] ", help="what stands before each line")
    add("--logs", default="", help="folder that gets a file for each rank too")
    add("--grace", type=float, default=30.0, help="seconds that ranks get to end by themselves")
    add("--until-eof", action="store_true", help="stop when standard input ends")
    add("command", nargs="+")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    args = parse(words)
    ranks = [(int(rank), dict(pair.split("=", 1) for pair in pairs)) for rank, *pairs in args.ranks]
    several = args.nodes > 1
    meeting = Meeting(args.name, args.node_rank, args.nodes, args.head, args.port, args.patience) if several else None
    try:
        return run(
            args.command, ranks, meeting=meeting, port=args.port if args.node_rank == 0 else None,
            mark=args.mark, logs=args.logs, grace_seconds=args.grace, until_eof=args.until_eof,
        )  # fmt: skip
    except PortTaken as error:
        say(f"{error}: end that process, or choose another port")
    except meet.GaveUp as error:
        say(f"gave up: {error.cause}: {error.detail}: are all nodes started, and may they reach the master's port?")
    except KeyboardInterrupt:
        return shown(-signal.SIGINT)
    return GAVE_UP


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
