"""Commands for dev environments: create from templates, start, stop, resize, remove."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
from rich.console import RenderableType

from fermi.carriage_returns import find_newest_state
from fermi.cli import completion, input_files, output
from fermi.cli.commands.environment_memory import memory
from fermi.cli.commands.environment_packages import level, packages
from fermi.cli.commands.environment_warm import warm, warm_text
from fermi.cli.commands.inventory import envs, render_environments
from fermi.cli.environment_detail import list_environment_fields, render_history, wait_for_state
from fermi.cli.log_lines import open_log_printer
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command, group
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.logs import LogLine

SIZE_OPTIONS = {"gpus": "gpuCount", "cpus": "cpuCores", "memory": "memoryGb", "shared_memory": "sharedMemoryGb",
         "disk": "diskGb"}  # fmt: skip


@group("environments", _("MORE_ENVIRONMENTS"))
@click.pass_context
def environments(ctx: click.Context, session: Session) -> None:
    if ctx.invoked_subcommand is None:
        items = list(session.fermi.environments.list())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: render_environments(items))


environments.add_command(envs, "list")
name_argument = click.argument("name", metavar="ENV", shell_complete=completion.complete_environments)
names_argument = click.argument("names", metavar="ENV...", nargs=-1, required=True,
                                shell_complete=completion.complete_environments)  # fmt: skip
wait_option = click.option("--wait", is_flag=True, help=_("OPTION_ENVIRONMENTS_WAIT"))


def add_size_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("--gpus", type=click.IntRange(0)),
            click.option("--cpus", type=click.IntRange(1)),
            click.option("--memory", type=click.IntRange(1), metavar="GIB"),
            click.option("--shared-memory", type=click.IntRange(0), metavar="GIB"),
            click.option("--disk", type=click.IntRange(0), metavar="GIB"),
        ]
    ):
        function = option(function)
    return function


def _read_sizes(given: dict[str, Any]) -> dict[str, Any]:
    return {api: given[name] for name, api in SIZE_OPTIONS.items() if given.get(name) is not None}


@command("environments show")
@name_argument
def show(session: Session, name: str) -> None:
    api = session.fermi.environments
    found: Any = api.get(NameResolver(session.fermi).environment(name))
    life = api.life(found["id"]) if found.get("hosted") else None
    data = {**found, "life": life} if life else found
    output.print_result(data, session.form, lambda: _render_environment(found, life))


def _render_environment(found: Any, life: Any) -> Iterator[RenderableType]:
    hosted = found.get("hosted")
    yield output.make_pairs(
        [
            ("ID", found["id"]),
            (_("NAME"), found["name"]),
            (_("STATUS"), output.format_status(found["status"])),
            *(list_environment_fields(hosted) if hosted else ()),
            (_("PROJECT"), found["projectId"]),
            (_("OWNER"), found["owner"]),
            (_("CLUSTER"), f"{found['clusterId']} ({found['backend']})"),
            (_("ZONE"), found["zone"]["name"]),
            (_("KIND"), found["kind"]),
            (_("IMAGE"), found["image"]),
            (_("STACK"), found["stack"]),
            ("GPU", _format_gpus(found)),
            ("CPU", found["cpuCores"]),
            (_("MEMORY_GB"), found["memoryGb"]),
            (_("HOST"), found["host"]),
            ("IP", found["ip"]),
            (_("TASK"), found["heldBy"]),
            (_("WARM"), warm_text(found["standby"])),
            (_("STARTED"), format_time(found["startedAt"])),
        ]
    )
    if hosted:
        yield from render_history(hosted, life)


@command("environments make", _("MORE_ENVIRONMENTS_MAKE"))
@click.argument("template", shell_complete=completion.complete_templates)
@click.option("--name", help=_("OPTION_MAKE_NAME"))
@click.option("--project", help=_("OPTION_MAKE_PROJECT"), shell_complete=completion.complete_projects)
@click.option("--gpu-type")
@add_size_options
@click.option("--cluster", help=_("OPTION_MAKE_CLUSTER"))
@click.option("--zone")
@click.option("--host", help=_("OPTION_MAKE_HOST"))
@click.option("--image", help=_("OPTION_MAKE_IMAGE"))
@click.option("--package", "packages", multiple=True, metavar="REQUIREMENT", help=_("OPTION_MAKE_PACKAGE"))
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help=_("OPTION_MAKE_ENV"))
@click.option("--secret-env", multiple=True, metavar="NAME=SECRET", help=_("OPTION_SECRET_ENV"))
@click.option("--port", "ports", multiple=True, metavar="NAME=PORT", help=_("OPTION_MAKE_PORT"))
@click.option("--idle-stop", metavar="MINUTES", help=_("OPTION_MAKE_IDLE_STOP"))
@wait_option
def make(session: Session, template: str, name: str | None, project: str | None, wait: bool, **given: Any) -> int:
    names = NameResolver(session.fermi)
    found: Any = session.fermi.environment_templates.get(names.template(template))
    request: Any = {
        "templateId": found["id"],
        "name": name or found["name"],
        "projectId": names.project(project) if project or not found.get("projectId") else found["projectId"],
        **_read_sizes(given),
        **_collect_changes(given, found),
    }
    if given["cluster"]:
        request["clusterId"] = names.cluster(given["cluster"], list(session.fermi.clusters.list()))
    made = session.fermi.environments.make(request)
    return _print_created(session, made, wait)


def _collect_changes(given: dict[str, Any], template: Any) -> dict[str, Any]:
    """Return what differs from the template; lists and tables contain what is added to it."""
    found: dict[str, Any] = {
        api: given[name]
        for name, api in (("zone", "zone"), ("host", "host"), ("image", "image"), ("gpu_type", "gpuType"))
        if given[name] is not None
    }
    if given["packages"]:
        found["packages"] = [*template["packages"], *given["packages"]]
    if given["variables"]:
        found["env"] = {**template["env"], **input_files.parse_settings(given["variables"], "--env")}
    if given["secret_env"]:
        found["secretEnv"] = {
            **template["secretEnv"],
            **input_files.parse_settings(given["secret_env"], "--secret-env"),
        }
    if given["ports"]:
        found["ports"] = [*template["ports"], *_parse_ports(given["ports"])]
    if given["idle_stop"] is not None:
        found["idleStopMinutes"] = _parse_minutes(given["idle_stop"])
    return found


def _parse_ports(given: tuple[str, ...]) -> list[dict[str, Any]]:
    found = input_files.parse_settings(given, "--port")
    if wrong := next((text for text in found.values() if not text.isdecimal()), None):
        raise click.BadParameter(_("PORT_NOT_A_NUMBER", given=wrong), param_hint="--port")
    return [{"name": name, "port": int(text)} for name, text in found.items()]


def _parse_minutes(given: str) -> int | None:
    if given == "never":
        return None
    if not given.isdecimal():
        raise click.BadParameter(_("MINUTES_NOT_A_NUMBER", given=given), param_hint="--idle-stop")
    return int(given)


def _print_created(session: Session, made: Any, wait: bool) -> int:
    if not wait:
        output.print_result(made, session.form, lambda: _render_environment(made, None))
        return 0
    found, code = wait_for_state(session, made)
    output.print_result(found, session.form, lambda: _render_environment(found, None))
    return code


def _make_lifecycle_command(action: str, said: Callable[[str], str]) -> click.Command:
    """Return a command that starts, stops or restarts an environment."""

    @command(f"environments {action}")
    @names_argument
    @wait_option
    def steer(session: Session, names: tuple[str, ...], wait: bool) -> int:
        act = getattr(session.fermi.environments, action)
        found = [act(one) for one in NameResolver(session.fermi).environments(names)]
        for one in found:
            output.print_message(said(one["id"]))
        codes = [wait_for_state(session, one)[1] for one in found] if wait else [0]
        return max(codes)

    return steer


@command("environments keep", _("MORE_ENVIRONMENTS_KEEP"))
@name_argument
@click.option("--hours", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True)
def keep_running(session: Session, name: str, hours: float) -> None:
    whole = int(hours) if hours == int(hours) else hours
    found = session.fermi.environments.keep(NameResolver(session.fermi).environment(name), whole)
    output.print_result(found, session.form, lambda: _render_environment(found, None))


@command("environments resize", _("MORE_ENVIRONMENTS_RESIZE"))
@name_argument
@add_size_options
def resize(session: Session, name: str, **given: Any) -> None:
    sizes: Any = _read_sizes(given)
    if not sizes:
        raise click.UsageError(_("SAY_WHICH_SIZE"))
    found = session.fermi.environments.resize(NameResolver(session.fermi).environment(name), sizes)
    output.print_result(found, session.form, lambda: _render_environment(found, None))


@command("environments clone", _("MORE_ENVIRONMENTS_CLONE"))
@name_argument
@click.argument("new")
@wait_option
def clone(session: Session, name: str, new: str, wait: bool) -> int:
    return _print_created(
        session, session.fermi.environments.clone(NameResolver(session.fermi).environment(name), new), wait
    )


@command("environments delete", _("MORE_ENVIRONMENTS_DELETE"))
@names_argument
@click.option("-y", "--yes", is_flag=True, help=_("OPTION_YES"))
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    ids = NameResolver(session.fermi).environments(names)
    if not yes:
        click.confirm(_("ASK_DELETE_ENVIRONMENTS", count=len(ids), names=", ".join(names)), abort=True, err=True)
    for one in ids:
        session.fermi.environments.delete(one)
        output.print_message(_("ENVIRONMENT_DELETING", id=one))


@command("environments logs", output=False)
@name_argument
@click.option("-f", "--follow", is_flag=True, help=_("OPTION_ENVIRONMENTS_FOLLOW"))
@click.option("--raw", is_flag=True, help=_("OPTION_RAW"))
def logs(session: Session, name: str, follow: bool, raw: bool) -> None:
    pieces, rest = session.fermi.environments.logs(NameResolver(session.fermi).environment(name), follow=follow), b""
    with open_log_printer(session, raw, marked=False, following=follow) as shown:
        for text in pieces:
            *lines, rest = (rest + text.encode()).split(b"\n")
            for line in lines:
                shown.print_log_line(_format_log_line(line))
            rest = rest[max(find_newest_state(rest)[0] - 1, 0) :]  # from its carriage return on, by which it is known
            if follow and b"\r" in rest:  # a progress bar
                shown.print_log_line(_format_log_line(rest, is_open=True))
        if rest:
            shown.print_log_line(_format_log_line(rest))


def _format_log_line(line: bytes, *, is_open: bool = False) -> LogLine:
    return LogLine(0, 0, 0, find_newest_state(line)[1].decode(), open=is_open)


@command("environments templates", _("MORE_ENVIRONMENTS_TEMPLATES"))
@click.argument("action", type=click.Choice(["list", "show", "create", "change", "delete"]), default="list")
@click.argument("name", required=False, shell_complete=completion.complete_templates)
@click.option("-f", "--file", metavar="FILE", help=_("OPTION_ENVIRONMENT_TEMPLATES_FILE"))
@click.option("--project", help=_("OPTION_ENVIRONMENT_TEMPLATES_PROJECT"), shell_complete=completion.complete_projects)
def templates(session: Session, action: str, name: str | None, file: str | None, project: str | None) -> None:
    api, names = session.fermi.environment_templates, NameResolver(session.fermi)
    whose = names.project(project) if project else None
    if action == "list":
        items = list(api.list(project=whose))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_render_templates(items)])
        return
    if action in ("create", "change") and not file:
        raise click.UsageError(_("SAY_WHICH_FILE", action=action))
    if action != "create" and not name:
        raise click.UsageError(_("SAY_WHICH_TEMPLATE", action=action))
    if action == "delete":
        api.delete(names.template(name or ""))
        output.print_message(_("DELETED", id=name))
        return
    asked: Any = input_files.read_request(file) if file else {}
    if name:
        asked.setdefault("name", name) if action == "create" else None
    if whose and action == "create":
        asked["projectId"] = whose
    calls: dict[str, Callable[[], Any]] = {
        "show": lambda: api.get(names.template(name or "")),
        "create": partial(api.create, asked),
        "change": lambda: api.update(names.template(name or ""), asked),
    }
    found = calls[action]()
    output.print_result(found, session.form, lambda: [_render_template(found)])


def _render_templates(items: list[Any]) -> RenderableType:
    rows: list[list[output.Cell]] = [
        [
            item["id"],
            item["name"],
            item["projectId"] or _("FOR_EVERYBODY"),
            item["kind"],
            _format_gpus(item),
            item["cpuCores"],
            item["memoryGb"],
            item["image"] or " ".join(item["packages"]) or None,
            item["idleStopMinutes"],
            item["description"] or None,
        ]
        for item in items
    ]
    headers = ["ID", _("NAME"), _("PROJECT"), _("KIND"), "GPU", "CPU", _("MEMORY_GB"), _("MADE_OF"), _("IDLE_MINUTES")]
    return output.make_table([*headers, _("DESCRIPTION")], rows)


def _format_gpus(item: Any) -> str | None:
    if not item["gpuCount"]:
        return None
    return f"{item['gpuCount']}×{item['gpuType'] or 'GPU'}" + (f" ({_('IS_EMULATED')})" if item["emulated"] else "")


def _render_template(item: Any) -> RenderableType:
    return output.make_pairs(
        [
            ("ID", item["id"]),
            (_("NAME"), item["name"]),
            (_("DESCRIPTION"), item["description"]),
            (_("PROJECT"), item["projectId"] or _("FOR_EVERYBODY")),
            (_("CLUSTER"), item["clusterId"]),
            (_("ZONE"), item["zone"]["name"] if item["zone"] else None),
            (_("KIND"), item["kind"]),
            (_("IMAGE"), item["image"]),
            (_("PACKAGES"), " ".join(item["packages"])),
            ("GPU", _format_gpus(item)),
            ("CPU", item["cpuCores"]),
            (_("MEMORY_GB"), item["memoryGb"]),
            (_("SHARED_MEMORY_GB"), item["sharedMemoryGb"] or None),
            (_("DISK_GB"), item["diskGb"] or None),
            (_("PORTS"), " ".join(f"{one['name']}={one['port']}" for one in item["ports"])),
            (_("VARIABLES"), " ".join(f"{name}={value}" for name, value in item["env"].items())),
            (_("SECRETS"), " ".join(f"{name}={secret}" for name, secret in item["secretEnv"].items())),
            (_("START_SCRIPT"), item["startScript"]),
            (_("IDLE_MINUTES"), item["idleStopMinutes"]),
            (_("BY"), item["createdBy"]),
            (_("CREATED"), format_time(item["createdAt"])),
        ]
    )


for one in (
    show,
    make,
    _make_lifecycle_command("start", lambda one: _("ENVIRONMENT_STARTING", id=one)),
    _make_lifecycle_command("stop", lambda one: _("ENVIRONMENT_STOPPING", id=one)),
    _make_lifecycle_command("restart", lambda one: _("ENVIRONMENT_RESTARTING", id=one)),
    keep_running,
    resize,
    clone,
    delete,
    logs,
    memory,
    packages,
    level,
    warm,
    templates,
):
    environments.add_command(one)
