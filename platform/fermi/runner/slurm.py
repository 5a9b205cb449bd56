"""Runs one node of a job as one task of a Slurm step: `python3 -m fermi.runner.slurm <the attempt's folder> [<node>]`.

Standard library only, Python 3.9 or later: the node has nothing of ours but the shared folder. There, `order.json` maps
Slurm nodes to nodes of the plan (without a mapping, the task's number is the node's), and `node-<k>.json` is the spec.
Waits until all nodes are ready (`barrier.py`), starts one process per GPU, and keeps `node-<k>.status.json`; its own
messages go to the job's log.

Slurm signals all processes of the step. SIGURG warns of the time limit: ranks ignore it, and are asked to end from
here. SIGTERM (the job is cancelled or preempted) reaches the ranks directly. The platform requests with `stop.json`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Any

from fermi.runner import barrier
from fermi.runner.code_delivery import build_interpreter_env
from fermi.runner.exit_codes import NO_RANK_STARTED, to_shell_code
from fermi.runner.files import SECRETS_NAME, PulseFile, RunnerPaths, StatusFile, TelemetryFile, read_json
from fermi.runner.inside import lower_priority
from fermi.runner.late_values import Late, decode_value
from fermi.runner.node import Node
from fermi.runner.prepare import Rendezvous, prepare_node
from fermi.runner.stop_requests import StopRequests

HEAD_POLL_SECONDS = 0.2
PULSE_SECONDS = 5.0
"""Between two writes of pulses: all nodes share the folder."""
READY_LINE = b"fermi: ready\n"
"""The same first line as in `fermi.envd.protocol`: the process that started this step waits for it."""
ENDED_EARLY = to_shell_code(-signal.SIGTERM)


def main(run_dir: str, inside: str = "") -> int:
    """Run the node and return the exit code."""
    order = read_json(os.path.join(run_dir, "order.json"))
    paths = RunnerPaths(os.path.join(run_dir, f"node-{inside or read_node_rank(order)}.json"))
    spec = read_json(paths.spec)
    if inside and not claim_node(paths):
        return NO_RANK_STARTED
    if read_json(paths.status) is not None:
        print("fermi: this node has run before", file=sys.stderr)
        return NO_RANK_STARTED
    node = build_node(spec, paths)
    node.stops.listen()
    if inside:
        node.save("starting")
    secrets = read_json(os.path.join(run_dir, SECRETS_NAME)) or {}
    missing = [name for name in order.get("secrets", ()) if name not in {**os.environ, **secrets}]
    if missing and not (inside and node.stops.early()):
        return end_with_cause(node, "START_FAILED", f"no value has come for {', '.join(missing)}")
    if inside and not wait_for_head(node, run_dir):
        node.save("exited")
        return compute_exit_code(node)
    if spec["node_rank"] == 0:
        _write_files(order, os.path.join(run_dir, "files"))
    meeting = Rendezvous(order["name"], spec["node_rank"], order["nodes"], os.environ["FERMI_HEAD"], order["port"])
    also = choose_interpreter(spec, run_dir) if inside else {}
    try:
        prepare_node(
            spec, meeting, lambda text: write_message(spec, text), lambda: node.stops.early() is not None, also
        )
    except barrier.RendezvousError as error:
        return end_with_cause(node, error.cause, error.detail, **error.about)
    except OSError as error:
        return end_with_cause(node, "START_FAILED", f"port {order['port']}: {error}")
    if secrets and spec["node_rank"] == 0 and not node.stops.early():  # all have met, so all have read them
        os.unlink(os.path.join(run_dir, SECRETS_NAME))
    spec["env"].update(secrets)
    spec["secrets"] = order.get("secrets", ())
    lower_priority(spec.get("yields") or {})
    node.run()
    return compute_exit_code(node)


def claim_node(paths: RunnerPaths) -> bool:
    """Return True if this step runs the node: it is the first, and the attempt was not cancelled. From here on output
    goes to the job's log."""
    step = f"{os.environ.get('SLURM_JOB_ID', '')}.{os.environ.get('SLURM_STEP_ID', '')}"
    if os.path.exists(paths.stop):
        return False
    try:
        os.symlink(step, paths.spec.removesuffix(".json") + ".begun")
    except FileExistsError:
        return False
    os.write(1, READY_LINE)
    log = os.open(os.path.join(paths.folder, "slurm.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o664)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    return True


def wait_for_head(node: Node, run_dir: str) -> bool:
    """Wait until the head's address is known. Return False if a stop was requested before."""
    while not node.stops.early():
        with contextlib.suppress(OSError), open(os.path.join(run_dir, "head"), encoding="utf-8") as file:
            if head := file.read().strip():
                os.environ["FERMI_HEAD"] = node.status["head"] = head
                return True
        time.sleep(HEAD_POLL_SECONDS)
    return False


def choose_interpreter(spec: dict[str, Any], run_dir: str) -> dict[Late, str]:
    """Return the interpreter of the plan on this node if it is not this one. Only confined ranks run it: the
    environment's members may write to it."""
    places = read_json(os.path.join(run_dir, "places.json")) or {}
    python = str((places.get(str(spec["node_rank"])) or {}).get("python") or "")
    if not python:
        return {}
    spec["env"].update(build_interpreter_env(python, spec["env"]))
    if "code" in spec:
        spec["code"]["python"] = python
    return {Late.PYTHON: python}


def read_node_rank(order: dict[str, Any]) -> int:
    """Return the number of this node in the plan."""
    host = os.environ.get("SLURMD_NODENAME", "")
    task = order["hosts"].index(host) if host in order["hosts"] else int(os.environ["SLURM_PROCID"])
    return int(order["ranks"][task] if "ranks" in order else task)


def build_node(spec: dict[str, Any], paths: RunnerPaths) -> Node:
    """Return the node. There is one task per node and job, so it needs no lock."""
    file = StatusFile(paths, len(spec["ranks"]))
    told: list[str] = []

    def save(status: dict[str, Any]) -> bool:
        if status["asked"] and not told:
            told.append(status["asked"])
            write_message(spec, "Slurm asks for the end")
        return file.save(status)

    stops = StopRequests(signal.SIGTERM, signal.SIGURG, heard=(signal.SIGTERM,), path=paths.stop)
    pulses, used = PulseFile(paths.pulse), TelemetryFile(paths.telemetry)
    node = Node(
        spec,
        stops,
        save,
        folder=paths.folder,
        report_pulses=pulses.save,
        tell_seconds=PULSE_SECONDS,
        tell_used=used.save,
    )
    numbers = {name: int(os.environ.get(name, "-1")) for name in ("SLURM_PROCID", "SLURM_NODEID")}
    where = {"host": os.environ.get("SLURMD_NODENAME", ""), "head": os.environ.get("FERMI_HEAD", "")}
    node.status.update(cause=None, **where, **numbers)
    return node


def write_message(spec: dict[str, Any], text: str) -> None:
    """Print a message to the job's log."""
    print(f"fermi: node {spec['node_rank']} ({spec['node']}): {text}", file=sys.stderr, flush=True)


def end_with_cause(node: Node, cause: str, detail: str, **about: Any) -> int:
    """Record the cause of an end without ranks, and return the exit code."""
    write_message(node.spec, f"gave up: {cause}: {detail}")
    node.status["cause"] = {"code": cause, "evidence": detail, **about}
    node.save("exited")
    return NO_RANK_STARTED


def compute_exit_code(node: Node) -> int:
    """Return the exit code of the step."""
    if any(entry["state"] != "exited" for entry in node.ranks):
        return NO_RANK_STARTED if node.status["cause"] else ENDED_EARLY
    return 1 if any(entry["exit_code"] for entry in node.ranks) else 0


def _write_files(order: dict[str, Any], folder: str) -> None:
    """Write the plan's files before the nodes have met, so that all nodes find them."""
    known = {Late.HEAD_HOST: os.environ["FERMI_HEAD"], Late.PYTHON: sys.executable}
    for name, pieces in order["files"].items():
        path = os.path.join(folder, name)
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            file.write(decode_value(pieces, known))
        os.replace(f"{path}.tmp", path)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
