"""Commands beside a rank of a job: `fermi.envd.rank_exec` as a step of the job, on the node of the rank, with what the
job has prepared for its ranks. Slurm lets only the user of a job in."""

import getpass
import re
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

from fermi.engines import runner_reports, subprocess_stream
from fermi.engines.base import Beside, not_running, out_of_reach
from fermi.engines.local.rank_exec import chosen
from fermi.engines.slurm import allocations
from fermi.engines.slurm.commands import Commands
from fermi.engines.slurm.rejections import ENDED
from fermi.engines.slurm.render import environment, folder_of, quoted
from fermi.engines.slurm.rundir import RunDir, Seen
from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Handle, Rendered

DIAL_SECONDS = 10.0
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def beside(connection: Mapping[str, Any], run: RunDir, rendered: Rendered, handle: Handle, rank: int) -> Beside:
    """Return how commands are started beside a rank. Raise BackendError."""
    content = {artifact.name: artifact.content for artifact in rendered.artifacts}
    node = next((one for one in content.values() if rank in _ranks(one)), None)
    seen, number = run.look(), node["node_rank"] if node else -1
    status = runner_reports.read(run.path / f"node-{number}.status.json") or {}
    host = str(status.get("host") or "")
    if node is None or not _runs(seen, number, rank) or not _HOST.fullmatch(host):
        raise not_running(handle, rank)
    user, own = str(connection.get("user") or getpass.getuser()), getpass.getuser()
    if user != own:
        raise BackendError("BESIDE_SLURM_USER", permanent=True, user=user, expected=own)
    commands = Commands(connection)
    commands.program("srun")
    known = content["order"].get("beside")
    if not known:  # rendered by an older version without this module
        raise out_of_reach(handle, rank, "fermi.envd.rank_exec is not there")
    if place := seen.places.get(number):
        where = [*commands.step(place.job), *allocations.options(place.host)]
    else:
        outer = content["order"].get("ranks") or range(number + 1)
        group = _group(content["submission"], list(outer).index(number))
        where = [*commands.step(seen.begun), *group, f"--nodelist={host}"]
    program = _program(connection, handle.name, known[number])
    dial = partial(_dial, commands, [*where, *program], _order(node, run, rank), handle, rank)
    if number not in seen.places:
        return Beside(number, dial)

    def dial_inside() -> socket.socket:
        """The allocation goes on without the rank."""
        if not _runs(run.look(), number, rank):
            raise not_running(handle, rank)
        return dial()

    return Beside(number, dial_inside)


def _runs(seen: Seen, node_rank: int, rank: int) -> bool:
    states = {entry["rank"]: entry["state"] for entry in seen.statuses.get(node_rank, {}).get("ranks", ())}
    return not seen.stop and not seen.end and states.get(rank) == "running"


def _ranks(content: Any) -> list[int]:
    ranks = content.get("ranks", ()) if isinstance(content, Mapping) else ()
    return [process["rank"] for process in ranks]


def _order(node: Mapping[str, Any], run: RunDir, rank: int) -> dict[str, Any]:
    """Return the order that `fermi.envd.rank_exec` reads."""
    own = next(process["env"] for process in node["ranks"] if process["rank"] == rank)
    head = (runner_reports.read(run.path / "node-0.status.json") or {}).get("head")
    return {
        "name": node["name"], "env": {**node["env"], **own}, "cwd": node["cwd"],
        "head": str(head or ""), "first": node["node_rank"] == 0,
        **({"confine": node["confine"]} if "confine" in node else {}),
        **_chosen(node, run),
    }  # fmt: skip


def _chosen(node: Mapping[str, Any], run: RunDir) -> dict[str, Any]:
    """Return the file with the interpreter that the node's ranks run with, where that may be another one than the
    planned."""
    own = run.path / f"python-{node['node_rank']}"
    return {"chosen": str(own)} if own.exists() and not chosen(node) else chosen(node)


def _group(submission: Mapping[str, Any], node_rank: int) -> list[str]:
    """Return the option for the component of a heterogeneous job that has the node: components are in the order of the
    nodes. Slurm takes the leader's number alone."""
    counts = [int(one["nodes"]) for one in submission["components"]]
    index = next(index for index in range(len(counts)) if node_rank < sum(counts[: index + 1]))
    return [f"--het-group={index}"] if len(counts) > 1 else []


def _program(connection: Mapping[str, Any], name: str, known: tuple[list[str], str]) -> list[str]:
    """Return the command in its shell. In a container of Slurm's own nothing that the job's script loads is loaded
    again."""
    options, command = known
    lines = environment({} if options else connection)
    login = ["-l"] if connection.get("modules") or connection.get("conda") else []
    script = "\n".join([f"run={quoted(f'{folder_of(connection)}/runs/{name}')}", *lines, f"exec {command}"])
    return [*options, "bash", *login, "-c", script]


def _dial(commands: Commands, words: list[str], order: Mapping[str, Any], handle: Handle, rank: int) -> socket.socket:
    try:
        stream = subprocess_stream.begin(words, commands.variables(), DIAL_SECONDS)
    except subprocess_stream.Silent as silent:
        if ENDED.search(silent.said):
            raise not_running(handle, rank) from silent
        raise out_of_reach(handle, rank, silent.said) from silent
    stream.sendall(protocol.line(order))
    return stream
