"""Commands that test whether nodes can train together, on a platform or by hand on every node."""

import json
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from fermi.cli import output, texts
from fermi.cli.error_handler import EXIT_TRAINING_FAILED
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.runner.ports import DEFAULT_MASTER_PORT

LEVEL_MARKS = {"pass": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "unknown": ("?", "dim")}


@command("preflight", _("MORE_PREFLIGHT"))
@click.argument("environments", nargs=-1, metavar="[ENV]...")
@click.option("--full", is_flag=True, help=_("OPTION_FULL"))
@click.option("--master", help=_("OPTION_PREFLIGHT_MASTER"))
@click.option("--framework", help=_("OPTION_PREFLIGHT_FRAMEWORK"))
@click.option("--json", "as_json", is_flag=True, help=_("OPTION_JSON"))
@click.option("--nnodes", type=click.IntRange(1), help=_("OPTION_NNODES"))
@click.option("--node-rank", type=click.IntRange(0), help=_("OPTION_NODE_RANK"))
@click.option("--master-addr", help=_("OPTION_MASTER_ADDR"))
@click.option("--master-port", type=click.IntRange(1, 65535), help=_("OPTION_PREFLIGHT_MASTER_PORT"))
@click.option("--name", help=_("OPTION_PREFLIGHT_NAME"))
@click.option("--patience", type=float, default=120.0, help=_("OPTION_PREFLIGHT_PATIENCE"))
def preflight(session: Session, environments: tuple[str, ...], as_json: bool, full: bool, **given: Any) -> int:
    session.form = "json" if as_json else session.form
    if environments:
        return _run_on_platform(session, environments, full, given)
    return _run_on_this_node(session, full, given)


def _run_on_platform(session: Session, environments: tuple[str, ...], full: bool, given: dict[str, Any]) -> int:
    names, tests = NameResolver(session.fermi), session.fermi.preflights
    master = names.environments([given["master"]])[0] if given["master"] else None
    created = tests.create(
        names.environments(environments), level="full" if full else "quick", master=master, framework=given["framework"]
    )
    output.print_message(_("TESTING", id=created["id"]))
    try:
        found = tests.wait(created["id"])
    except KeyboardInterrupt:
        tests.stop(created["id"])
        raise
    output.print_result(found, session.form, lambda: render_matrix(found))
    verdict = found["verdict"]
    if verdict is None and found["reason"]:
        output.print_error(found["reason"]["message"])
    return EXIT_TRAINING_FAILED if found["status"] != "done" or verdict is None or verdict["level"] == "fail" else 0


# By hand --------------------------------------------------------------------------------------------------------------


def _run_on_this_node(session: Session, full: bool, given: dict[str, Any]) -> int:
    """Run the test on this node. Node 0 collects the reports of all nodes and judges them; the others print whether
    they reached it."""
    from fermi.preflight import report as preflight_report
    from fermi.preflight import verdict as judge
    from fermi.train import preflight as test
    from fermi.train.preflight_net import PreflightOrder

    _set_variables(given)
    full = full or os.environ["WORLD_SIZE"] == "1"
    about = {"level": "full" if full else "quick", "patience": given["patience"], "quiet": True}
    about |= {"name": given["name"] or socket.gethostname()}
    order = PreflightOrder({**os.environ, "FERMI_PREFLIGHT": json.dumps(about)})
    if order.world > 1 and order.rank == 0:
        output.print_message(_("WAITING_FOR_NODES", n=order.world - 1, port=order.port))
    facts = test.run_preflight(order, lambda fact: None)
    if order.rank:
        return _report_member(facts)
    names = {fact["rank"]: fact["name"] for fact in facts if fact["preflight"] == "hello"}
    members = [
        judge.NodeUnderTest(rank, _name_node(names, rank), _name_node(names, rank))
        for rank in range(order.world)
    ]  # fmt: skip
    report = judge.build_report(members, facts, about["level"], given["framework"] or "")
    found = preflight_report.translate_report(report, texts.get_language())
    output.print_result(found, session.form, lambda: render_matrix(found))
    return EXIT_TRAINING_FAILED if found["verdict"]["level"] == "fail" else 0


def _name_node(names: dict[int, str], rank: int) -> str:
    """Return a name for this node. Two nodes may have one host name; their ranks then tell them apart."""
    name = names.get(rank, _("NODE_OF_RANK", rank=rank))
    return f"{name} ({rank})" if list(names.values()).count(name) > 1 else name


def _set_variables(given: dict[str, Any]) -> None:
    """Set the rendezvous variables from the options, else from Slurm's, else leave them as they are; a single node
    needs none."""
    env = os.environ
    if (nodes := given["nnodes"]) is not None:
        if nodes > 1 and (given["node_rank"] is None or not (given["master_addr"] or env.get("MASTER_ADDR"))):
            raise click.UsageError(_("SEVERAL_NODES_NEED_MORE"))
        if (rank := given["node_rank"] or 0) >= nodes:
            raise click.UsageError(_("NODE_RANK_TOO_HIGH", rank=rank, nodes=nodes))
        env |= {"WORLD_SIZE": str(nodes), "RANK": str(rank), "NODE_RANK": str(rank)}
        env |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    elif "SLURM_PROCID" in env and "RANK" not in env:
        head = re.sub(r"\[(\d+).*", r"\1", env.get("SLURM_STEP_NODELIST", "127.0.0.1").split(",")[0])
        env |= {"WORLD_SIZE": env["SLURM_NTASKS"], "RANK": env["SLURM_PROCID"], "NODE_RANK": env["SLURM_NODEID"]}
        env |= {"LOCAL_RANK": env["SLURM_LOCALID"], "LOCAL_WORLD_SIZE": env["SLURM_TASKS_PER_NODE"].partition("(")[0]}
        env.setdefault("MASTER_ADDR", head)
    elif not any(name in env for name in ("WORLD_SIZE", "RANK")):
        env |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    if given["master_addr"]:
        env["MASTER_ADDR"] = given["master_addr"]
    if given["master_port"]:
        env["MASTER_PORT"] = str(given["master_port"])
    if env.get("WORLD_SIZE") == "1":
        env.setdefault("MASTER_ADDR", "127.0.0.1")
    env.setdefault("MASTER_PORT", str(DEFAULT_MASTER_PORT))
    for name in ("WORLD_SIZE", "RANK"):
        if not env.get(name, "").isdecimal():
            raise click.UsageError(_("NOT_A_NUMBER", name=name, value=env.get(name, "")))


def _report_member(facts: list[Any]) -> int:
    head = next(fact for fact in facts if fact["preflight"] == "head")
    if head["via"] is not None:
        output.print_message(_("TESTED_RESULT_AT_NODE_0", address=head["address"]))
        return 0
    where = f"{head['asked']} → {', '.join(head['resolved']) or '?'}" + (
        f" ({head['source']})" if head["source"] else ""
    )
    output.print_error(_("NODE_0_NOT_FOUND", where=where))
    for attempt in head["tries"]:
        output.print_message(f"  {attempt['address']}:{attempt['port']}  {attempt['result']}")
    return EXIT_TRAINING_FAILED


# What is shown --------------------------------------------------------------------------------------------------------


def render_matrix(found: Any) -> Iterator[RenderableType]:
    """Return the matrix of measured links; tests on a platform and by hand have the same shape."""
    names = {node["environmentId"]: node["name"] for node in found["nodes"]}
    for node in found["nodes"]:
        yield Text.assemble(_format_level(node["level"]), " ", output.escape_controls(node["name"]))
        alone = len(found["nodes"]) == 1
        for one in node["findings"]:
            if alone or one["level"] != "pass" or one["check"] == "interface":
                seen = _format_value(one["value"]) if alone else ""
                yield Text.assemble(
                    "    ",
                    _format_level(one["level"]),
                    output.escape_controls(f" {one['message']}"),
                    (seen and f"  {seen}", "dim"),
                )
    if found["pairs"]:
        ways = {(pair["from"], pair["to"]): pair for pair in found["pairs"]}
        yield Text("")
        yield output.make_table(
            [_("FROM_DOWN_TO_RIGHT"), *names.values()],
            [[name, *(_format_pair(ways.get((here, there))) for there in names)] for here, name in names.items()],
        )
    if together := found["together"]:
        yield Text("")
        for one in together["findings"]:
            yield Text.assemble(_format_level(one["level"]), output.escape_controls(f" {one['message']}"))
        if together["allReduceMs"] is not None:
            yield output.make_line(
                f"    all-reduce {together['allReduceMs']:.3g} ms, barrier {together['barrierMs']:.3g} ms"
            )
    if verdict := found["verdict"]:
        yield Text.assemble(
            "\n", _format_level(verdict["level"]), (output.escape_controls(f" {verdict['message']}"), "bold")
        )
        for culprit in verdict["culprits"]:
            yield output.make_line(f"  • {culprit['message']}")
            if culprit["hint"]:
                yield output.make_line(f"    → {culprit['hint']}")


def _format_value(value: Any) -> str:
    """Return what was measured in one line: `torch 2.13.0, cuda 12.4`."""
    if not isinstance(value, dict):
        return ""
    return ", ".join(f"{name} {inner}" for name, inner in value.items() if isinstance(inner, str | int | float))


def _format_level(level: str) -> tuple[str, str]:
    return LEVEL_MARKS[level]


def _format_pair(pair: Any) -> Text | str:
    if pair is None:
        return "·"
    parts = [f"{pair['rttMs']:.3g} ms"] if pair["rttMs"] is not None else []
    if pair["bandwidthMbps"] is not None:
        mbps = pair["bandwidthMbps"]
        parts.append(f"{mbps / 1000:.3g} Gbit/s" if mbps >= 1000 else f"{mbps:.3g} Mbit/s")
    return Text.assemble(_format_level(pair["level"]), f" {', '.join(parts)}".rstrip())
