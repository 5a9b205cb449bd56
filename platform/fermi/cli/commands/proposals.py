"""The command by which a person decides requests of agents."""

import json
import sys
from collections.abc import Iterator, Sequence

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.proposal_sentences import describe_request
from fermi.cli.texts import _
from fermi.cli.times import format_duration, format_gpu_hours, format_time
from fermi.client.types import ProposalDifference, ProposalItem, ProposalPlan

STATES = ["open", "approved", "declined", "expired"]
NOT_KNOWN, FAILED = 5, 2  # exit codes: whether the request succeeded is not known; it was refused


@command("proposals", _("MORE_PROPOSALS"))
@click.argument("action", type=click.Choice(["list", "show", "approve", "decline"]), default="list")
@click.argument("proposal", required=False)
@click.option("--state", type=click.Choice([*STATES, "all"]), default="open", help=_("OPTION_PROPOSALS_STATE"))
@click.option("--agent", help=_("OPTION_PROPOSALS_AGENT"))
@click.option("--note", help=_("OPTION_PROPOSALS_NOTE"))
@click.option("--reason", help=_("OPTION_PROPOSALS_REASON"))
@click.option("--again", is_flag=True, help=_("OPTION_PROPOSALS_AGAIN"))
@click.option("-y", "--yes", is_flag=True, help=_("OPTION_YES"))
def proposals(
    session: Session, action: str, proposal: str | None, state: str, agent: str | None, note: str | None,
    reason: str | None, again: bool, yes: bool,
) -> int:  # fmt: skip
    there = session.fermi.proposals
    if action == "list":
        token_id = NameResolver(session.fermi).agent_token(agent) if agent else None
        items = list(there.list(None if state == "all" else state, token_id))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_table(items)])
        return 0
    if not proposal:
        raise click.UsageError(_("PROPOSALS_ID_MISSING", action=action))
    if note is not None and action != "approve":
        raise click.UsageError(_("PROPOSALS_NOTE_UNUSED"))
    if reason is not None and action != "decline":
        raise click.UsageError(_("PROPOSALS_REASON_UNUSED"))
    if action == "show":
        found = there.get(proposal)
        output.print_result(found, session.form, lambda: _render(found))
        return 0
    if action == "decline":
        declined = there.decline(proposal, reason or "")
        output.print_result(declined, session.form, list)
        output.print_message(_("PROPOSALS_DECLINED", id=declined["id"]))
        return 0
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(_("NOBODY_TO_ASK"))
        for line in _summarize(there.get(proposal)):
            output.print_message(line)
        click.confirm(_("PROPOSALS_CONFIRM"), abort=True, err=True)
    approved = there.approve(proposal, note or "", again=again)
    output.print_result(approved, session.form, list)
    return _report_outcome(approved)


def _report_outcome(item: ProposalItem) -> int:
    """Print what became of an approved request on standard error, and return the exit code."""
    status, result = item["status"], item["result"] or {}
    if status is None:
        output.print_error(_("PROPOSALS_CUT_OFF", id=item["id"]))
        return NOT_KNOWN
    if status < 400:
        output.print_message(_("PROPOSALS_APPROVED", id=item["id"]))
        if task := (result.get("data") or {}).get("taskId"):
            output.print_message(_("TASK_CREATED", id=task))
        return 0
    output.print_error(_("PROPOSALS_FAILED", id=item["id"]))
    for problem in result.get("errors") or [result]:
        for part in ("message", "hint"):
            if problem.get(part):
                output.print_message(f"  {problem[part]}")
    return FAILED


def _summarize(item: ProposalItem) -> list[str]:
    """Return what a person needs to know before approving: the request, in whose name, its cost, what is beyond."""
    plan = item["plan"]
    cost = [_("PROPOSALS_COSTS", gpu_hours=_format_gpu_hours(plan), cost=_format_cost(plan))] if plan else []
    head = [
        describe_request(item),
        _("PROPOSALS_IN_NAME_OF", agent=item["agent"] or item["tokenName"], user=item["user"]),
    ]
    return [*head, *cost, *(f"- {one['message']}" for one in item["beyond"])]


def _render(item: ProposalItem) -> Iterator[RenderableType]:
    yield output.make_line(describe_request(item), "bold")
    decided = _("PROPOSALS_DECIDED_BY", name=item["decidedBy"], time=format_time(item["decidedAt"]))
    yield output.make_pairs(
        [
            (_("ID"), item["id"]),
            (_("STATE"), item["state"]),
            (_("PROPOSALS_AGENT"), item["agent"] or item["tokenName"]),
            (_("USER"), item["user"]),
            (_("PROJECT"), item["project"]),
            (_("CREATED"), format_time(item["createdAt"])),
            (_("ENDS"), format_time(item["expiresAt"]) if item["state"] == "open" else None),
            (_("PROPOSALS_DECIDED"), decided if item["decidedBy"] else None),
            (_("PROPOSALS_NOTE"), item["note"]),
        ]
    )
    yield output.make_heading(_("PROPOSALS_BEYOND"))
    yield from (output.make_line(f"- {one['message']}") for one in item["beyond"])
    if plan := item["plan"]:
        yield output.make_heading(_("PROPOSALS_PLAN"))
        yield _make_plan(plan)
    if (difference := item["difference"]) and difference["changes"]:
        yield output.make_heading(_("PROPOSALS_DIFFERENCE", task=difference["taskId"]))
        yield _make_difference(difference)
    if item["body"]:
        yield output.make_heading(_("PROPOSALS_REQUEST"))
        yield output.make_line(f"{item['method']} {item['path']}")
        yield output.make_line(json.dumps(item["body"], ensure_ascii=False, indent=2))


def _make_plan(plan: ProposalPlan) -> output.Table:
    longest = plan["maxRunSeconds"]
    return output.make_pairs(
        [
            (_("NAME"), plan["name"]),
            (_("PROPOSALS_SCALE"), _("PROPOSALS_NODES_AND_GPUS", nodes=plan["nodes"], gpus=plan["gpus"])),
            (_("PROPOSALS_ENVIRONMENTS"), " ".join(plan["environments"])),
            (_("PROPOSALS_LONGEST"), _("PROPOSALS_ENDLESS") if longest is None else format_duration(longest)),
            (_("GPU_HOURS"), _format_gpu_hours(plan)),
            (_("COST"), _format_cost(plan)),
        ]
    )


def _make_difference(difference: ProposalDifference) -> output.Table:
    rows = [[one["field"], one["before"], one["after"]] for one in difference["changes"]]
    return output.make_table([_("PROPOSALS_FIELD"), _("PROPOSALS_BEFORE"), _("PROPOSALS_AFTER")], rows)


def _format_gpu_hours(plan: ProposalPlan) -> str:
    hours = format_gpu_hours(plan["gpuHours"])
    return _("PROPOSALS_NOT_KNOWN") if hours is None else _("PROPOSALS_AT_MOST", amount=hours)


def _format_cost(plan: ProposalPlan) -> str:
    cost = plan["cost"]
    if cost is None:
        return _("PROPOSALS_NOT_KNOWN")
    return _("PROPOSALS_AT_MOST", amount=f"{cost:.2f} {plan['currency']}")


def _make_table(items: Sequence[ProposalItem]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [
            item["id"],
            item["state"],
            item["agent"] or item["tokenName"],
            item["user"],
            describe_request(item),
            _format_cost(item["plan"]) if item["plan"] else None,
            format_time(item["createdAt"]),
            format_time(item["expiresAt"]),
        ]
        for item in items
    ]
    headers = [
        _("ID"),
        _("STATE"),
        _("PROPOSALS_AGENT"),
        _("USER"),
        _("PROPOSALS_WANTED"),
        _("COST"),
        _("CREATED"),
        _("ENDS"),
    ]
    return output.make_table(headers, rows)
