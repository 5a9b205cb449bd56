"""One node of a job as one task of a Slurm step: `python3 -m fermi.runner.slurm <the attempt's folder>`.

Standard library only, Python 3.9 or later: the node has nothing of ours but the shared folder. There, `order.json` says
which Slurm node is which node of the plan (where nobody cared, the task's number says it), and `node-<k>.json` what it
runs. Waits until all nodes are there (`meet.py`), starts one process per GPU, and keeps `node-<k>.status.json`; what it
has to say itself goes to the job's log.

Slurm signals all processes of the step. SIGURG warns of the time limit: ranks do not mind it, and are asked to end from
here. SIGTERM (the job is cancelled or preempted) they have all got by themselves. The platform asks with `stop.json`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from fermi.runner import meet
from fermi.runner.exits import GAVE_UP
from fermi.runner.late import Late, decode
from fermi.runner.node import PR_SET_CHILD_SUBREAPER, SECRETS, Node, Paths, _libc, read_json

ENDED_BEFORE = 128 + signal.SIGTERM


class SlurmNode(Node):
    def __init__(self, spec: dict[str, Any], paths: Paths) -> None:
        super().__init__(spec, paths, os.open(os.devnull, os.O_RDONLY))  # one task per node and job, so no lock
        numbers = {name: int(os.environ.get(name, "-1")) for name in ("SLURM_PROCID", "SLURM_NODEID")}
        self.status.update(host=os.environ.get("SLURMD_NODENAME", ""), cause=None, **numbers)

    def say(self, text: str) -> None:
        print(f"fermi: node {self.spec['node_rank']} ({self.spec['node']}): {text}", file=sys.stderr, flush=True)

    def run(self) -> None:
        signal.signal(signal.SIGURG, lambda *_: None)  # wakes `sleep`
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        super().run()

    def drain(self, wake: int) -> None:
        """What follows from either signal is not the ranks' own failure."""
        try:
            numbers = os.read(wake, 4096)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers:
            self.asked("SIGTERM")
            self.kill_at = self.kill_at or time.monotonic() + self.spec["grace_seconds"]
        elif signal.SIGURG in numbers:
            self.asked("SIGURG")
            self.ask_to_end(self.spec["grace_seconds"])

    def asked(self, by: str) -> None:
        self.reap()
        if not self.status["asked"] and any(entry["state"] == "running" for entry in self.ranks):
            self.status.update(asked=by, asked_at=time.time())
            for entry in self.ranks:
                entry["asked"] = entry["state"] != "exited"
            self.save(self.status["state"])
            self.say("Slurm asks for the end")

    def give_up(self, cause: str, detail: str, **about: Any) -> int:
        self.say(f"gave up: {cause}: {detail}")
        self.status["cause"] = {"code": cause, "evidence": detail, **about}
        self.save("exited")
        return GAVE_UP

    def code(self) -> int:
        if any(entry["state"] != "exited" for entry in self.ranks):
            return GAVE_UP if self.status["cause"] else ENDED_BEFORE
        return 1 if any(entry["exit_code"] for entry in self.ranks) else 0


def place(order: dict[str, Any]) -> int:
    """Which node of the plan this is."""
    host = os.environ.get("SLURMD_NODENAME", "")
    if host in order["hosts"]:
        return int(order["hosts"].index(host))
    return int(os.environ["SLURM_PROCID"])


def main(run_dir: str) -> int:
    order = read_json(os.path.join(run_dir, "order.json"))
    paths = Paths(os.path.join(run_dir, f"node-{place(order)}.json"))
    spec = read_json(paths.spec)
    if read_json(paths.status) is not None:
        print("fermi: this node has run before", file=sys.stderr)
        return GAVE_UP
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGURG):
        signal.signal(number, lambda number, _: signals.append(number))
    node = SlurmNode(spec, paths)

    def stopped() -> bool:
        return bool(signals) or os.path.exists(paths.stop)

    secrets = read_json(os.path.join(run_dir, SECRETS)) or {}
    if missing := [name for name in order.get("secrets", ()) if name not in {**os.environ, **secrets}]:
        return node.give_up("START_FAILED", f"no value has come for {', '.join(missing)}")
    if spec["node_rank"] == 0:
        _write_files(order, os.path.join(run_dir, "files"))
    try:
        head = _meet(order, spec["node_rank"], node, stopped)
    except meet.GaveUp as error:
        return node.give_up(error.cause, error.detail, **error.about)
    except OSError as error:
        return node.give_up("START_FAILED", f"port {order['port']}: {error}")
    if stopped():
        node.status["asked"] = signal.Signals(signals[0]).name if signals else ""
        node.save("exited")
        return ENDED_BEFORE
    if secrets and spec["node_rank"] == 0:  # all have met, so all have read them
        os.unlink(os.path.join(run_dir, SECRETS))
    known = {Late.HEAD_HOST: head, Late.PYTHON: sys.executable}
    spec["command"] = [decode(word, known) for word in spec["command"]]
    spec["env"] = {name: decode(value, known) for name, value in spec["env"].items()}
    interface = meet.interface_to(head)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if interface and not os.environ.get(name):
            spec["env"].setdefault(name, interface)
    spec["env"].update(secrets)
    for rank in spec["ranks"]:
        rank["env"] = {name: decode(value, known) for name, value in rank["env"].items()}
    node.run()
    return node.code()


def _write_files(order: dict[str, Any], folder: str) -> None:
    """Before the nodes have met, so all find them so."""
    for name, pieces in order["files"].items():
        path = os.path.join(folder, name)
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            file.write(decode(pieces, {Late.HEAD_HOST: os.environ["FERMI_HEAD"], Late.PYTHON: sys.executable}))
        os.replace(f"{path}.tmp", path)


def _meet(order: dict[str, Any], node_rank: int, node: SlurmNode, stopped: meet.Stopped) -> str:
    head, port, patience = os.environ["FERMI_HEAD"], order["port"], meet.PATIENCE_SECONDS
    if order["nodes"] == 1:
        return head
    if node_rank == 0:
        meet.as_head(order["name"], order["nodes"], port, node.say, stopped, patience)
        return head
    return meet.as_member(order["name"], node_rank, head, port, node.say, stopped, patience)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
