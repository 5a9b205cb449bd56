"""Commands beside a rank of a job: `fermi.envd.rank_exec` as a step of the job, on the node of the rank, with what the
job has prepared for its ranks. Slurm lets only the user of a job in."""

import getpass
import re
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

from fermi.engines import runner_reports, subprocess_stream
from fermi.engines.base import RankExec, build_rank_not_running_error, build_rank_unreachable_error
from fermi.engines.local.rank_exec import build_chosen_option
from fermi.engines.slurm import allocations
from fermi.engines.slurm.commands import SlurmCommands
from fermi.engines.slurm.rejections import ENDED_PATTERN
from fermi.engines.slurm.render import build_environment_lines, get_data_root, quote_word
from fermi.engines.slurm.rundir import RunDir, RunDirContents
from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Handle, Rendered

DIAL_SECONDS = 10.0
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find_rank_exec(
    connection: Mapping[str, Any], run: RunDir, rendered: Rendered, handle: Handle, rank: int
) -> RankExec:
    """Return how commands are started beside a rank. Raise BackendError."""
    content = {artifact.name: artifact.content for artifact in rendered.artifacts}
    node = next((one for one in content.values() if rank in _list_ranks(one)), None)
    seen, number = run.read_contents(), node["node_rank"] if node else -1
    status = runner_reports.read_report(run.path / f"node-{number}.status.json") or {}
    host = str(status.get("host") or "")
    if node is None or not _is_running(seen, number, rank) or not _HOST.fullmatch(host):
        raise build_rank_not_running_error(handle, rank)
    user, own = str(connection.get("user") or getpass.getuser()), getpass.getuser()
    if user != own:
        raise BackendError("BESIDE_SLURM_USER", permanent=True, user=user, expected=own)
    commands = SlurmCommands(connection)
    commands.program("srun")
    known = content["order"].get("beside")
    if not known:  # rendered by an older version without this module
        raise build_rank_unreachable_error(handle, rank, "fermi.envd.rank_exec is not there")
    if place := seen.places.get(number):
        where = [*commands.step(place.job), *allocations.build_step_options(place.host)]
    else:
        outer = content["order"].get("ranks") or range(number + 1)
        group = _build_group_option(content["submission"], list(outer).index(number))
        where = [*commands.step(seen.begun), *group, f"--nodelist={host}"]
    program = _build_program(connection, handle.name, known[number])
    dial = partial(_dial_rank, commands, [*where, *program], _build_order(node, run, rank), handle, rank)
    if number not in seen.places:
        return RankExec(number, dial)

    def dial_inside() -> socket.socket:
        """The allocation goes on without the rank."""
        if not _is_running(run.read_contents(), number, rank):
            raise build_rank_not_running_error(handle, rank)
        return dial()

    return RankExec(number, dial_inside)


def _is_running(contents: RunDirContents, node_rank: int, rank: int) -> bool:
    states = {entry["rank"]: entry["state"] for entry in contents.statuses.get(node_rank, {}).get("ranks", ())}
    return not contents.stop and not contents.end and states.get(rank) == "running"


def _list_ranks(content: Any) -> list[int]:
    ranks = content.get("ranks", ()) if isinstance(content, Mapping) else ()
    return [process["rank"] for process in ranks]


def _build_order(node: Mapping[str, Any], run: RunDir, rank: int) -> dict[str, Any]:
    """Return the order that `fermi.envd.rank_exec` reads."""
    own = next(process["env"] for process in node["ranks"] if process["rank"] == rank)
    head = (runner_reports.read_report(run.path / "node-0.status.json") or {}).get("head")
    return {
        "name": node["name"], "env": {**node["env"], **own}, "cwd": node["cwd"],
        "head": str(head or ""), "first": node["node_rank"] == 0,
        **({"confine": node["confine"]} if "confine" in node else {}),
        **_build_chosen_option(node, run),
    }  # fmt: skip


def _build_chosen_option(node: Mapping[str, Any], run: RunDir) -> dict[str, Any]:
    """Return the file with the interpreter that the node's ranks run with, where that may be another one than the
    planned."""
    own = run.path / f"python-{node['node_rank']}"
    return {"chosen": str(own)} if own.exists() and not build_chosen_option(node) else build_chosen_option(node)


def _build_group_option(submission: Mapping[str, Any], node_rank: int) -> list[str]:
    """Return the option for the component of a heterogeneous job that has the node: components are in the order of the
    nodes. Slurm takes the leader's number alone."""
    counts = [int(one["nodes"]) for one in submission["components"]]
    index = next(index for index in range(len(counts)) if node_rank < sum(counts[: index + 1]))
    return [f"--het-group={index}"] if len(counts) > 1 else []


def _build_program(connection: Mapping[str, Any], name: str, prepared: tuple[list[str], str]) -> list[str]:
    """Return the command in its shell. In a container of Slurm's own nothing that the job's script loads is loaded
    again."""
    options, command = prepared
    lines = build_environment_lines({} if options else connection)
    login = ["-l"] if connection.get("modules") or connection.get("conda") else []
    script = "\n".join([f"run={quote_word(f'{get_data_root(connection)}/runs/{name}')}", *lines, f"exec {command}"])
    return [*options, "bash", *login, "-c", script]


def _dial_rank(
    commands: SlurmCommands, words: list[str], order: Mapping[str, Any], handle: Handle, rank: int
) -> socket.socket:
    try:
        stream = subprocess_stream.open_ready_stream(words, commands.variables(), DIAL_SECONDS)
    except subprocess_stream.ProgramNotReadyError as silent:
        if ENDED_PATTERN.search(silent.said):
            raise build_rank_not_running_error(handle, rank) from silent
        raise build_rank_unreachable_error(handle, rank, silent.said) from silent
    stream.sendall(protocol.encode_line(order))
    return stream
