"""The command for tokens of agents, with purses."""

import json
from collections.abc import Sequence
from typing import Any

import click

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import AgentToken, AgentTokenCreated

LIMITS = {
    "gpu-hours": "gpuHours",
    "money": "money",
    "max-running": "maxRunning",
    "env": "environments",
}
"""Limits that a purse may be without, by option."""


@command("agents", _("MORE_AGENTS"))
@click.argument("action", type=click.Choice(["list", "show", "create", "change", "revoke"]), default="list")
@click.argument("name", required=False)
@click.option("--project", "projects", multiple=True, help=_("OPTION_AGENTS_PROJECT"))
@click.option("--agent", help=_("OPTION_AGENTS_AGENT"))
@click.option("--scope", "scopes", multiple=True, help=_("OPTION_AGENTS_SCOPE"))
@click.option("--days", type=click.IntRange(1), help=_("OPTION_AGENTS_DAYS"))
@click.option("--gpu-hours", type=click.FloatRange(0), help=_("OPTION_AGENTS_GPU_HOURS"))
@click.option("--money", type=click.FloatRange(0), help=_("OPTION_AGENTS_MONEY"))
@click.option("--max-running", type=click.IntRange(0), help=_("OPTION_AGENTS_MAX_RUNNING"))
@click.option("--env", "environments", multiple=True, help=_("OPTION_AGENTS_ENV"))
@click.option("--preemptible/--any-priority", default=None, help=_("OPTION_AGENTS_PREEMPTIBLE"))
@click.option("--no-limit", "endless", type=click.Choice([*LIMITS]), multiple=True, help=_("OPTION_AGENTS_NO_LIMIT"))
@click.option("--mcp", type=click.Choice(["http", "command"]), is_flag=False, flag_value="http",
              help=_("OPTION_AGENTS_MCP"))  # fmt: skip
def agents(
    session: Session, action: str, name: str | None, projects: tuple[str, ...], agent: str | None,
    scopes: tuple[str, ...], days: int | None, gpu_hours: float | None, money: float | None, max_running: int | None,
    environments: tuple[str, ...], preemptible: bool | None, endless: tuple[str, ...], mcp: str | None,
) -> None:  # fmt: skip
    there, resolver = session.fermi.agent_tokens, NameResolver(session.fermi)
    if action == "list":
        items = list(there.list())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_table(items)])
        return
    if not name:
        raise click.UsageError(_("AGENTS_NAME_MISSING", action=action))
    created_alone = {"--project": projects, "--agent": agent, "--scope": scopes, "--days": days, "--mcp": mcp}
    given = {
        "gpu-hours": gpu_hours,
        "money": money,
        "max-running": max_running,
        "env": resolver.environments(environments) if environments else None,
    }
    limits = _collect_limits(given, preemptible, endless)
    flags: dict[str, Any] = {f"--{option}": value for option, value in given.items()}
    limit_options = {**flags, "--preemptible": preemptible, "--no-limit": endless}
    refused = created_alone if action == "change" else {**created_alone, **limit_options}
    if action != "create" and (wrong := [flag for flag, value in refused.items() if value not in (None, ())]):
        raise click.UsageError(_("AGENTS_OPTION_UNUSED", action=action, option=wrong[0]))
    if action == "create":
        chosen = [resolver.project(one) for one in projects or [None]]
        made = there.create(name, chosen, limits, agent=agent, scopes=scopes or None, expires_in_days=days)
        _print_created(session, made, mcp)
        return
    token_id = resolver.agent_token(name)
    if action == "revoke":
        there.revoke(token_id)
        output.print_message(_("AGENTS_REVOKED", id=token_id))
        return
    if action == "change" and not limits:
        raise click.UsageError(_("AGENTS_NO_CHANGE"))
    found = there.change(token_id, limits) if action == "change" else there.get(token_id)
    output.print_result(found, session.form, lambda: [output.make_pairs(_list_facts(found))])


def _collect_limits(given: dict[str, Any], preemptible: bool | None, endless: Sequence[str]) -> dict[str, Any]:
    """Return the limits as the API has them. Raise click.UsageError for a limit that is given and removed."""
    if both := [option for option in endless if given[option] is not None]:
        raise click.UsageError(_("AGENTS_LIMIT_TWICE", option=both[0]))
    limits = {LIMITS[option]: value for option, value in given.items() if value is not None}
    limits |= {LIMITS[option]: None for option in endless}
    return limits if preemptible is None else {**limits, "preemptibleOnly": preemptible}


def _print_created(session: Session, made: AgentTokenCreated, mcp: str | None) -> None:
    """Print the token alone on standard output, or the configuration that contains it, and that neither is shown
    again on standard error."""
    if mcp is None:
        output.print_result(made, session.form, lambda: [made["token"]])
    else:
        configuration = build_mcp_configuration(session.fermi.url, made["token"], mcp)
        output.print_result(configuration, session.form, lambda: [json.dumps(configuration, indent=2)])
    if session.form == "table":
        output.print_message(_("AGENTS_SHOWN_ONCE", id=made["id"], ends=format_time(made["expiresAt"]) or "–"))


def build_mcp_configuration(url: str, token: str, way: str) -> dict[str, Any]:
    """Return what a client of the Model Context Protocol reads: `way` is http, or command for `fermi mcp`."""
    server: dict[str, Any] = {"command": "fermi", "args": ["mcp", "--url", url], "env": {"FERMI_TOKEN": token}}
    if way == "http":
        server = {"url": f"{url.rstrip('/')}/mcp", "headers": {"Authorization": f"Bearer {token}"}}
    return {"mcpServers": {"fermi": server}}


def _make_table(items: Sequence[AgentToken]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [
            item["id"],
            item["name"],
            item["agent"],
            item["user"],
            " ".join(item["projects"]),
            _format_rest(item, "gpuHours"),
            _format_rest(item, "money"),
            item["unfinishedTasks"],
            item["openProposals"],
            format_time(item["expiresAt"]),
        ]
        for item in items
    ]
    headers = [
        _("ID"),
        _("NAME"),
        _("AGENTS_AGENT"),
        _("USER"),
        _("PROJECT"),
        _("AGENTS_GPU_HOURS_LEFT"),
        _("AGENTS_MONEY_LEFT"),
        _("AGENTS_UNFINISHED"),
        _("AGENTS_PROPOSALS"),
        _("ENDS"),
    ]
    return output.make_table(headers, rows)


def _list_facts(item: AgentToken) -> list[tuple[str, output.Cell]]:
    limits = item["purse"]
    only = limits["environments"]
    return [
        (_("ID"), item["id"]),
        (_("NAME"), item["name"]),
        (_("AGENTS_AGENT"), item["agent"]),
        (_("USER"), item["user"]),
        (_("PROJECT"), " ".join(item["projects"])),
        (_("SCOPES"), " ".join(item["scopes"])),
        (_("AGENTS_GPU_HOURS_LEFT"), _format_rest(item, "gpuHours") or _("AGENTS_ENDLESS")),
        (_("AGENTS_GPU_HOURS_SPENT"), round(item["spent"]["gpuHours"] or 0.0, 2)),
        (_("AGENTS_MONEY_LEFT"), _format_rest(item, "money") or _("AGENTS_ENDLESS")),
        (_("AGENTS_MONEY_SPENT"), f"{item['spent']['money'] or 0.0:.2f} {item['currency']}"),
        (_("AGENTS_UNFINISHED"), item["unfinishedTasks"]),
        (_("AGENTS_MAX_RUNNING"), limits["maxRunning"]),
        (_("AGENTS_PREEMPTIBLE_ONLY"), limits["preemptibleOnly"] or None),
        (_("AGENTS_ENVIRONMENTS"), None if only is None else " ".join(only) or "–"),
        (_("AGENTS_PROPOSALS"), item["openProposals"]),
        (_("CREATED"), format_time(item["createdAt"])),
        (_("ENDS"), format_time(item["expiresAt"])),
        (_("LAST_USED"), format_time(item["lastUsedAt"])),
    ]


def _format_rest(item: AgentToken, kind: str) -> str | None:
    """Return what is left of a limit, such as "3.5 of 10"; None without one."""
    limit, left = (item[part][kind] for part in ("purse", "left"))  # type: ignore[literal-required]
    if limit is None:
        return None
    unit = f" {item['currency']}" if kind == "money" else ""
    return _("AGENTS_LEFT_OF", left=f"{left:.2f}", limit=f"{limit:.2f}{unit}")
