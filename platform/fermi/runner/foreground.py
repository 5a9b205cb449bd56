"""Runs one node of a job in the foreground, for people who start it by hand. Standard library only, Python 3.9 or
later.

    python -m fermi.runner.foreground --rank 0 RANK=0 LOCAL_RANK=0 --rank 1 RANK=1 LOCAL_RANK=1 -- python -u train.py

Starts one process per --rank, with this process's environment and the given variables, and exits with the code of the
rank that failed first (128 + n for signal n), or 0. With `--node-rank K --nodes N --head HOST --port PORT` it first
waits until all N nodes are ready (`barrier.py`), so that no rank waits for a node that has not been started.

Ranks that hang are reported, with where each of them is. Ranks that exceed the node's limits are killed (`bounds.py`,
`disk_usage.py`); 0 = no limit. With --confine, ranks can access what `sandbox.py` lists, plus --read and --write; where
this is not possible, no rank is started.

Ctrl-C, SIGTERM or SIGHUP stop the ranks (SIGTERM, then SIGKILL after the grace period); a second one kills them now.
With --until-eof, the end of standard input stops them, too: the ssh connection that started them is gone then.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from fermi.runner import barrier, bounds, foreground_sandbox, ports, terminal_report
from fermi.runner.exit_codes import DEFAULT_GRACE_SECONDS, NO_RANK_STARTED, to_shell_code
from fermi.runner.node import Node
from fermi.runner.output_pipes import OutputPipes, write_all
from fermi.runner.prepare import Rendezvous, prepare_node
from fermi.runner.stop_requests import StopRequests

MAX_LINE_BYTES = 1 << 16
PROGRESS_BAR_SECONDS = 1.0
"""Between two states of a progress bar that are shown."""
MAX_AMOUNT = 1 << 30
"""The largest value of an option that sets a limit."""


class PortInUseError(Exception):
    """Another process listens on the port of rank 0."""

    def __init__(self, port: int) -> None:
        self.port, self.holder = port, ports.describe_holder(port)
        super().__init__(f"port {port} is in use" + (f" by {self.holder}" if self.holder else ""))


class TerminalOutput:
    """Forwards the output of a rank to the terminal, line by line, and to its log file. `mark`: a prefix of each line,
    such as `[rank {rank}] `; None: nothing is shown."""

    def __init__(self, rank: int, mark: str | None, folder: str) -> None:
        self.mark = None if mark is None else mark.format(rank=rank).encode()
        self.rest = self.shown = b""
        self.shown_at = 0.0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file = os.open(os.path.join(folder, f"{rank}.log"), flags, 0o640) if folder else None

    def write(self, data: bytes) -> None:
        """Write and show `data`; empty data means the end."""
        if self.file is not None:
            write_all(self.file, data)
        if self.mark is None:
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        if self.rest and (not data or len(self.rest) > MAX_LINE_BYTES):
            lines, self.rest = [*lines, self.rest], b""
        write_all(1, b"".join(self.mark + _keep_newest_state(line) + b"\n" for line in lines))

    def flush(self) -> None:
        """Show the newest state of a line that is printed over (a progress bar) from time to time. Each rank has its
        own line: in one terminal the bars of several ranks would print over each other."""
        if self.mark is None or b"\r" not in self.rest or time.monotonic() - self.shown_at < PROGRESS_BAR_SECONDS:
            return
        newest = _keep_newest_state(self.rest)
        if newest and newest != self.shown:
            write_all(1, self.mark + newest + b"\n")
        self.rest, self.shown, self.shown_at = b"\r" + newest, newest, time.monotonic()


def _keep_newest_state(line: bytes) -> bytes:
    """Return the text after the last carriage return."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].rstrip(b" ") if b"\r" in line else line


def report_result(node: Node) -> int:
    """Print which rank failed and why, and return the exit code."""
    if node.hung_ranks:
        write_message(f"{terminal_report.format_ranks(node.hung_ranks)} hung after all others had ended with 0: killed")
    if asked := node.status["asked"]:
        return to_shell_code(-signal.Signals[asked])
    culprit = node.first_to_fail()
    cause = node.status.get("cause")
    if cause and (culprit is None or culprit["asked"]):
        begun = any(entry["pid"] for entry in node.ranks)
        write_message(
            f"{'the ranks were ended' if begun else 'no rank was started'}: {terminal_report.describe_cause(cause)}"
        )
        return to_shell_code(culprit["exit_code"]) if culprit else NO_RANK_STARTED
    if culprit is None or (node.hung_ranks and node.ranks[0]["exit_code"] == 0):
        return 0
    code = culprit["exit_code"]
    how = f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
    why = terminal_report.describe_failure(culprit)
    write_message(
        f"rank {culprit['rank']} (pid {culprit['pid']}) {how}{why}; the other ranks of this node were stopped"
    )
    if cause:
        write_message(terminal_report.describe_cause(cause))
    if confine := node.spec.get("confine"):
        written = ", ".join(path for path, mode in confine["paths"].items() if mode == "rwm")
        write_message(f"it was confined, and could write to {written} only: --write and --read give it more")
    return to_shell_code(code)


def write_message(text: str) -> None:
    """Print a message to standard error."""
    sys.stderr.write(f"fermi: {text}\n")
    sys.stderr.flush()


def run_ranks(
    command: list[str],
    ranks: list[tuple[int, dict[str, str]]],
    *,
    env: dict[str, str] | None = None,
    meeting: Rendezvous | None = None,
    port: int | None = None,
    mark: str | None = "[rank {rank}] ",
    logs: str = "",
    grace_seconds: float = DEFAULT_GRACE_SECONDS,
    until_eof: bool = False,
    pulse: bool = True,
    hang_seconds: float | None = None,
    starts_ranks: bool = False,
    bounded: Mapping[str, Any] | None = None,
    confine: Mapping[str, Any] | None = None,
) -> int:
    """Run the ranks (number and environment of each) to their end, and return the exit code. `port`: where rank 0 of
    this node will listen, if it is one of them. `pulse`, `hang_seconds`, `confine`: see `node.py`; `starts_ranks`: its
    `processes`. `bounded`: see `bounds.build_bounds`. Raises PortInUseError, RendezvousError and SandboxError before
    any rank is started."""
    if port is not None and not ports.is_port_free(port):
        raise PortInUseError(port)
    if confine:
        foreground_sandbox.check_sandbox(confine)
    signals = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        signals.remove(signal.SIGHUP)
    stops = StopRequests(*signals, until_eof=until_eof, second_kills=True)
    spec = {
        "name": "", "node_rank": 0, "command": command, "cwd": os.getcwd(), "env": {**read_folder_variables(), **(env or
        {})}, "ranks": [
            {"rank": rank, "local_rank": index, "env": own, "log": os.path.join(logs, f"{rank}.log")}
            for index, (rank, own) in enumerate(ranks)
        ],
        "stop_signal": "SIGTERM", "grace_seconds": grace_seconds, "pulse": pulse, "hang_seconds": hang_seconds,
        "processes": "node" if starts_ranks else "gpu",
        "bounds": {**(bounds.build_bounds() if bounded is None else bounded), "beside": [os.getcwd()]}, "confine":
    confine, }  # fmt: skip
    if meeting is not None:
        try:
            prepare_node(spec, meeting, write_message, lambda: stops.early() is not None)
        except barrier.RendezvousError as error:
            if error.cause == "MASTER_PORT_TAKEN":  # since it was looked at
                raise PortInUseError(meeting.port) from error
            raise
    if logs:
        os.makedirs(logs, exist_ok=True)
    lines = {rank: TerminalOutput(rank, mark, logs) for rank, _ in ranks}
    pipes = OutputPipes({rank: one.write for rank, one in lines.items()}, [one.flush for one in lines.values()])
    node = TerminalNode(spec, stops, terminal_report.StallReporter(write_message).save, pipes, whole=meeting is None)
    node.run()
    return report_result(node)


class TerminalNode(Node):
    """A node that does not log the cause of its end: it is printed last, in words."""

    def blame(self, bound: dict[str, Any]) -> None:
        self.status["cause"] = bound


def read_folder_variables() -> dict[str, str]:
    """Return the variables of our own environment that name folders of the job, which count as its disk use."""
    return {name: os.environ[name] for name in foreground_sandbox.WRITABLE_VARIABLES if name in os.environ}


def _parse_amount(text: str) -> float:
    number = float(text)
    if not 0 <= number < MAX_AMOUNT:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 (no bound) to {MAX_AMOUNT}")
    return number


def _parse_count(text: str) -> int:
    return int(_parse_amount(text))


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed command line."""
    about, layout = __doc__, argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("fermi.runner.foreground", description=about, formatter_class=layout)
    add = parser.add_argument
    add("--rank", dest="ranks", nargs="+", action="append", required=True, metavar="N KEY=VALUE")
    add("--name", default="job", help="name of the job, the same on all of its nodes")
    add("--node-rank", type=int, default=0)
    add("--nodes", type=int, default=1)
    add("--head", default="127.0.0.1", help="host of rank 0")
    add("--port", type=int, required=True, help="port of rank 0")
    add("--patience", type=float, default=barrier.DEFAULT_TIMEOUT_SECONDS, help="seconds to wait for the other nodes")
    add("--mark", default="[rank {rank}] ", help="prefix of each line")
    add("--logs", default="", help="folder for a log file per rank")
    add(
        "--grace",
        type=float,
        default=DEFAULT_GRACE_SECONDS,
        help="seconds that ranks have to exit before they are killed",
    )
    add("--until-eof", action="store_true", help="stop when standard input ends")
    add(
        "--no-pulse",
        dest="pulse",
        action="store_false",
        help="run ranks without a probe; hangs are not detected",
    )
    add("--hang-seconds", type=float, help="hang timeout: seconds without progress")
    add("--starts-ranks", action="store_true", help="the command starts the ranks itself: run it once")
    add(
        "--processes",
        type=_parse_count,
        default=bounds.DEFAULT_MAX_PROCESSES,
        help="maximum processes of this node; threads: eight times as many",
    )
    add(
        "--open-files", type=_parse_count, default=bounds.DEFAULT_MAX_OPEN_FILES, help="maximum open files of this node"
    )
    add("--memory-gb", type=_parse_amount, default=0.0, help="maximum memory of this node, in GiB")
    add("--disk-gb", type=_parse_amount, default=0.0, help="maximum of logs, outputs and checkpoints, in GiB")
    add(
        "--reserve-percent",
        type=_parse_amount,
        default=bounds.DEFAULT_RESERVE_PERCENT,
        help="percentage of each disk to leave free",
    )
    add("--confine", action="store_true", help="ranks can access only what they are given")
    add("--read", action="append", default=[], metavar="PATH", help="with --confine: ranks may also read it")
    add("--write", action="append", default=[], metavar="PATH", help="with --confine: ranks may also write to it")
    add("command", nargs="+")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    args = parse_arguments(arguments)
    ranks = [(int(rank), dict(pair.split("=", 1) for pair in pairs)) for rank, *pairs in args.ranks]
    several = args.nodes > 1
    bounded = bounds.build_bounds(args.processes, args.open_files, args.memory_gb, args.disk_gb, args.reserve_percent)
    meeting = (
        Rendezvous(args.name, args.node_rank, args.nodes, args.head, args.port, args.patience) if several else None
    )
    try:
        return run_ranks(
            args.command, ranks, meeting=meeting, port=args.port if args.node_rank == 0 else None,
            mark=args.mark, logs=args.logs, grace_seconds=args.grace, until_eof=args.until_eof,
            pulse=args.pulse, hang_seconds=args.hang_seconds, starts_ranks=args.starts_ranks, bounded=bounded,
            confine=foreground_sandbox.build_sandbox_order(args.read, args.write, os.environ) if args.confine else None,
        )  # fmt: skip
    except PortInUseError as error:
        write_message(f"{error}: end that process, or choose another port")
    except foreground_sandbox.SandboxError as error:
        write_message(f"--confine: {error.reason}: no rank was started")
    except barrier.RendezvousError as error:
        write_message(
            f"gave up: {error.cause}: {error.detail}: are all nodes started, and may they reach the master's port?"
        )
    except KeyboardInterrupt:
        return to_shell_code(-signal.SIGINT)
    return NO_RANK_STARTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
