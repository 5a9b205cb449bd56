"""Commands for what is repeated: saved templates and schedules."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.input_files import parse_settings, parse_values, read_request
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import (
    SavedTemplateCreateRequest,
    SavedTemplateItem,
    ScheduleCreateRequest,
    ScheduleItem,
    ScheduleRunItem,
)

TEXT_TYPES = ("string", "choice", "datasetVersion")
MAX_SHOWN_RUNS = 100


@command("template", _("MORE_TEMPLATE"))
@click.argument("action", type=click.Choice(["list", "show", "save", "run", "delete"]), default="list")
@click.argument("name", required=False)
@click.option("--task", help=_("OPTION_TEMPLATE_TASK"))
@click.option("-f", "--file", metavar="FILE", help=_("OPTION_TEMPLATE_FILE"))
@click.option("--parameter", "parameters", metavar="NAME:TYPE=PATH", multiple=True, help=_("OPTION_TEMPLATE_PARAMETER"))
@click.option("--description", default="", help=_("OPTION_TEMPLATE_DESCRIPTION"))
@click.option("-p", "--set", "values", metavar="NAME=VALUE", multiple=True, help=_("OPTION_TEMPLATE_SET"))
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
def template(
    session: Session,
    action: str,
    name: str | None,
    task: str | None,
    file: str | None,
    parameters: tuple[str, ...],
    description: str,
    values: tuple[str, ...],
    project: str | None,
) -> None:
    there = session.fermi.saved_templates
    where = NameResolver(session.fermi).project(project) if project else None
    if action == "list":
        items = list(there.list(where))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_template_table(items)])
        return
    if not name:
        raise click.UsageError(_("TEMPLATE_NAME_REQUIRED", action=action))
    if action == "save":
        body = _build_template(name, task, file, parameters, description)
        if where or not task:
            body["projectId"] = where or NameResolver(session.fermi).project(None)
        saved = there.create(cast(SavedTemplateCreateRequest, body))
        output.print_result(saved, session.form, lambda: [output.make_line(_("TEMPLATE_SAVED", id=saved["id"]))])
        return
    found = _find_template(session, name)
    if action == "show":
        output.print_result(found, session.form, lambda: [_make_parameter_table(found)])
    elif action == "delete":
        there.delete(found["id"])
        output.print_message(_("DELETED", id=found["name"]))
    else:
        made = there.run(found["id"], read_values(found, values), project=where)
        output.print_result(made, session.form, lambda: [output.make_line(_("TASK_CREATED", id=made["taskId"]))])


def _build_template(
    name: str, task: str | None, file: str | None, parameters: Sequence[str], description: str
) -> dict[str, Any]:
    """Return the body of a save. A file is a request, or an object with `request` and `parameters`. Raise
    click.UsageError."""
    if bool(task) == bool(file):
        raise click.UsageError(_("TEMPLATE_TASK_OR_FILE"))
    read = read_request(file) if file else {}
    source: dict[str, Any] = {"taskId": task} if task else {"request": read.get("request", read)}
    given = [*(read.get("parameters") or []), *map(_parse_parameter, parameters)]
    return {"name": name, "description": description, "parameters": given, **source}


def _parse_parameter(text: str) -> dict[str, str]:
    """Return the parameter that NAME:TYPE=PATH describes. Raise click.BadParameter."""
    head, equals, path = text.partition("=")
    name, _colon, kind = head.partition(":")
    if not (equals and name and path):
        raise click.BadParameter(_("PARAMETER_NOT_READABLE", value=text), param_hint="--parameter")
    return {"name": name, "type": kind or "string", "path": path}


def read_values(found: SavedTemplateItem, pairs: Sequence[str]) -> dict[str, Any]:
    """Return NAME=VALUE arguments as values of a template's parameters: texts for those that are texts, a list for
    environments, JSON for the others. The platform checks them."""
    types: Mapping[str, str] = {one["name"]: one["type"] for one in found["parameters"]}
    texts, others = parse_settings(pairs, "--set"), parse_values(pairs, "--set")
    values: dict[str, Any] = {}
    for name, text in texts.items():
        kind = types.get(name)
        values[name] = text if kind in TEXT_TYPES else text.split(",") if kind == "environments" else others[name]
    return values


def _find_template(session: Session, name: str) -> SavedTemplateItem:
    """Return the template with this id or name. Raise click.UsageError."""
    items = [one for one in session.fermi.saved_templates.list() if name in (one["id"], one["name"])]
    if len(items) != 1:
        raise click.UsageError(_("TEMPLATE_NOT_ONE", name=name, count=len(items)))
    return items[0]


def _make_template_table(items: Sequence[SavedTemplateItem]) -> RenderableType:
    rows: list[list[output.Cell]] = [
        [one["id"], one["name"], one["projectId"] or "-", ", ".join(part["name"] for part in one["parameters"]),
         one["version"], one["createdBy"]]
        for one in items
    ]  # fmt: skip
    return output.make_table(["ID", _("NAME"), _("PROJECT"), _("PARAMETERS"), _("VERSION"), _("CREATED_BY")], rows)


def _make_parameter_table(found: SavedTemplateItem) -> RenderableType:
    rows: list[list[output.Cell]] = []
    for one in found["parameters"]:
        bounds = " … ".join("" if bound is None else str(bound) for bound in (one["low"], one["high"]))
        allowed = ", ".join(one["choices"]) or bounds.strip(" …")
        default = "" if one["default"] is None else str(one["default"])
        rows.append([one["name"], one["type"], default, allowed, one["help"] or one["label"]])
    headers = [_("NAME"), _("TYPE"), _("DEFAULT_VALUE"), _("ALLOWED"), _("MEANING")]
    return output.make_table(headers, rows, title=found["name"])


@command("schedule", _("MORE_SCHEDULE"))
@click.argument(
    "action", type=click.Choice(["list", "add", "run", "pause", "resume", "remove", "history"]), default="list"
)
@click.argument("name", required=False)
@click.option("--cron", metavar="CRON", help=_("OPTION_SCHEDULE_CRON"))
@click.option("--zone", default="UTC", help=_("OPTION_SCHEDULE_ZONE"))
@click.option("--template", "saved", help=_("OPTION_SCHEDULE_TEMPLATE"))
@click.option("-f", "--file", metavar="FILE", help=_("OPTION_SCHEDULE_FILE"))
@click.option("-p", "--set", "values", metavar="NAME=VALUE", multiple=True, help=_("OPTION_TEMPLATE_SET"))
@click.option("--missed", type=click.Choice(["skip", "last", "all"]), help=_("OPTION_SCHEDULE_MISSED"))
@click.option(
    "--overlap", type=click.Choice(["allow", "skip", "queue", "stop-older"]), help=_("OPTION_SCHEDULE_OVERLAP")
)
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
def schedule(
    session: Session,
    action: str,
    name: str | None,
    cron: str | None,
    zone: str,
    saved: str | None,
    file: str | None,
    values: tuple[str, ...],
    missed: str | None,
    overlap: str | None,
    project: str | None,
) -> None:
    there = session.fermi.schedules
    if action == "list":
        items = list(there.list(NameResolver(session.fermi).project(project) if project else None))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_schedule_table(items)])
        return
    if not name:
        raise click.UsageError(_("SCHEDULE_NAME_REQUIRED", action=action))
    if action == "add":
        if not cron or bool(saved) == bool(file):
            raise click.UsageError(_("SCHEDULE_NEEDS_CRON"))
        policies = {"missed": missed, "overlap": overlap}
        body: dict[str, Any] = {"name": name, "cron": cron, "zone": zone}
        body |= {key: value for key, value in policies.items() if value}
        body["projectId"] = NameResolver(session.fermi).project(project)
        if saved:
            found = _find_template(session, saved)
            body |= {"templateId": found["id"], "values": read_values(found, values)}
        elif file:
            body["request"] = read_request(file)
        made = there.create(cast(ScheduleCreateRequest, body))
        output.print_result(made, session.form, lambda: [_make_schedule_table([made])])
        return
    one = _find_schedule(session, name)
    if action == "history":
        runs = there.runs(one["id"]).first(MAX_SHOWN_RUNS)
        output.print_result({"items": runs, "total": len(runs)}, session.form, lambda: [_make_run_table(runs)])
    elif action == "run":
        run = there.run(one["id"])
        output.print_result(run, session.form, lambda: [_make_run_table([run])])
    elif action == "remove":
        there.delete(one["id"])
        output.print_message(_("DELETED", id=one["name"]))
    else:
        changed = there.change(one["id"], {"enabled": action == "resume"})
        output.print_result(changed, session.form, lambda: [_make_schedule_table([changed])])


def _find_schedule(session: Session, name: str) -> ScheduleItem:
    """Return the schedule with this id or name. Raise click.UsageError."""
    items = [one for one in session.fermi.schedules.list() if name in (one["id"], one["name"])]
    if len(items) != 1:
        raise click.UsageError(_("SCHEDULE_NOT_ONE", name=name, count=len(items)))
    return items[0]


def _make_schedule_table(items: Sequence[ScheduleItem]) -> RenderableType:
    rows: list[list[output.Cell]] = [
        [one["id"], one["name"], f"{one['cron']} {one['zone']}", one["templateName"] or "-",
         format_time(one["nextAt"]) if one["nextAt"] else _describe_stop(one), one["lastTaskId"] or "-", one["owner"]]
        for one in items
    ]  # fmt: skip
    headers = ["ID", _("NAME"), "cron", _("TEMPLATE"), _("NEXT_MOMENT"), _("NEWEST_TASK"), _("OWNER")]
    return output.make_table(headers, rows)


def _describe_stop(one: ScheduleItem) -> str:
    return one["stopped"]["message"] if one["stopped"] else _("SCHEDULE_IS_PAUSED")


def _make_run_table(runs: Sequence[ScheduleRunItem]) -> RenderableType:
    rows: list[list[output.Cell]] = [
        [format_time(run["moment"]), run["outcome"], run["taskId"] or "-",
         run["reason"]["message"] if run["reason"] else ""]
        for run in runs
    ]  # fmt: skip
    return output.make_table([_("MOMENT"), _("OUTCOME"), _("TASK"), _("REASON")], rows)
