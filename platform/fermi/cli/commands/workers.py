"""Commands for bare-metal workers and their groups."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.input_files import parse_settings as key_values
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_duration
from fermi.client.types import GroupItem, WorkerItem


@command("workers", _("MORE_WORKERS"))
@click.argument("action", type=click.Choice(["list", "show", "env", "delete", "join-token"]), default="list")
@click.argument("name", required=False)
@click.option("--group", help=_("OPTION_GROUP"))
@click.option("--node")
@click.option("--status", multiple=True, type=click.Choice(["online", "suspect", "lost", "never"]))
@click.option("--search", help=_("OPTION_INVENTORY_SEARCH"))
@click.option("--project", help=_("OPTION_JOIN_TOKEN_PROJECT"))
def workers(session: Session, action: str, name: str | None, project: str | None, **filters: Any) -> None:
    api = session.fermi.workers
    if action == "list":
        items = list(api.list(**filters))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: _render_workers(items))
        return
    if not name:
        raise click.UsageError(_("SAY_WHICH_WORKER", action=action))
    if action == "show":
        found = api.get(name)
        output.print_result(found, session.form, lambda: _render_worker(found))
    elif action == "env":
        seen = api.environment(name)
        output.print_warnings({**problem, "code": problem["error"]} for problem in seen["problems"])
        output.print_result(seen, session.form, lambda: [output.make_pairs(sorted(seen["env"].items()))])
    elif action == "delete":
        api.delete(name)
        output.print_message(_("DELETED", id=name))
    else:
        made = api.create_join_token(name, project=project)
        output.print_result(
            made, session.form, lambda: [output.make_pairs([("ID", made["id"]), (_("TOKEN"), made["token"])])]
        )
        output.print_message(_("RUN_ON_A_HOST", command=made["command"]))


@command("groups", _("MORE_GROUPS"))
@click.argument(
    "action",
    type=click.Choice(["list", "show", "create", "edit", "delete", "move", "start", "stop", "restart"]),
    default="list",
)
@click.argument("name", required=False)
@click.argument("workers", nargs=-1)
@click.option("--rename", help=_("OPTION_RENAME"))
@click.option("--master", help=_("OPTION_WORKERS_MASTER"))
@click.option("--world-size", type=int, help=_("OPTION_WORLD_SIZE"))
@click.option("--port", type=int, help=_("OPTION_WORKERS_PORT"))
@click.option("--backend", type=click.Choice(["nccl", "gloo"]))
@click.option("--script", help=_("OPTION_WORKERS_SCRIPT"))
@click.option("--arg", "args", multiple=True, help=_("OPTION_ARG"))
@click.option("--env", multiple=True, metavar="NAME=VALUE", help=_("OPTION_WORKERS_ENV"))
@click.option(
    "--secret-env",
    multiple=True,
    metavar="NAME=SECRET",
    help=_("OPTION_SECRET_ENV"),
)
@click.option("--max-restarts", type=int)
@click.option("--project", help=_("OPTION_GROUP_PROJECT"))
def groups(
    session: Session, action: str, name: str | None, workers: tuple[str, ...], project: str | None, **given: Any
) -> None:
    api = session.fermi.groups
    if action == "list":
        items = list(api.list())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: _render_groups(items))
        return
    if not name:
        raise click.UsageError(_("SAY_WHICH_GROUP", action=action))
    if action == "create":
        new: Any = {"name": name, "workerIds": [*workers], **_collect_settings(given)}
        made = api.create(new | {"projectId": project} if project else new)
        output.print_result(made, session.form, lambda: _render_group(made))
        return
    group_id = None if action == "move" and name == "none" else _resolve_group(session, name)
    if action == "move":
        api.move(workers, group_id)
        output.print_message(_("WORKERS_MOVED", count=len(workers)))
        return
    assert group_id is not None
    if action == "delete":
        api.delete(group_id)
        output.print_message(_("DELETED", id=name))
        return
    steer = {"show": api.get, "start": api.start, "stop": api.stop, "restart": api.restart}
    found = api.update(group_id, _collect_changes(given)) if action == "edit" else steer[action](group_id)
    output.print_result(found, session.form, lambda: _render_group(found))


def _collect_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings under the API's names, without those that were not given."""
    names = {"master": "masterAddress", "port": "masterPort", "backend": "backend", "script": "script",
             "max_restarts": "maxRestarts"}  # fmt: skip
    found = {api: given[name] for name, api in names.items() if given[name] is not None}
    if given["world_size"] is not None:
        found["worldSize"] = given["world_size"] or None
    if given["args"]:
        found["args"] = [*given["args"]]
    if given["env"]:
        found["env"] = key_values(given["env"], "--env")
    if given["secret_env"]:
        found["secretEnv"] = key_values(given["secret_env"], "--secret-env")
    return found


def _collect_changes(given: dict[str, Any]) -> Any:
    return {**_collect_settings(given), **({"name": given["rename"]} if given["rename"] else {})}


def _resolve_group(session: Session, name: str) -> str:
    """Return the id of the group with this id or unique name."""
    found = [item["id"] for item in session.fermi.groups.list(search=name) if item["name"] == name]
    if len(found) > 1:
        kind, ids = _("A_GROUP"), ", ".join(found)
        raise click.UsageError(_("NAME_AMBIGUOUS", name=name, kind=kind, ids=ids))
    return found[0] if found else name


def _render_workers(items: list[WorkerItem]) -> Iterator[RenderableType]:
    rows = [
        [
            item["id"],
            output.format_status(item["status"]),
            None if item["heartbeatAgeSeconds"] is None else format_duration(item["heartbeatAgeSeconds"]),
            item["group"]["name"] if item["group"] else None,
            item["rank"],
            item["process"]["state"],
            item["process"]["taskId"],
            item["usage"]["gpuUtilization"],
            item["usage"]["gpuMemoryUsedMb"],
            item["host"],
        ]
        for item in items
    ]
    headers = [
        _("WORKER"),
        _("STATUS"),
        _("LAST_HEARD"),
        _("GROUP"),
        "RANK",
        _("PROCESS"),
        _("TASK"),
        "GPU %",
        "GPU MB",
    ]
    yield output.make_table([*headers, _("HOST")], rows)


def _render_worker(item: WorkerItem) -> Iterator[RenderableType]:
    yield output.make_pairs(
        [
            (_("WORKER"), item["id"]),
            (_("STATUS"), output.format_status(item["status"])),
            (_("GROUP"), item["group"]["name"] if item["group"] else None),
            ("RANK", item["rank"]),
            ("LOCAL_RANK", item["localRank"]),
            ("NODE_RANK", item["nodeRank"]),
            ("WORLD_SIZE", item["worldSize"]),
            ("GPU", item["gpu"]),
            (_("PROCESS"), item["process"]["state"]),
            (_("TASK"), item["process"]["taskId"]),
            ("PID", item["process"]["pid"]),
            (_("EXIT_CODE"), item["process"]["exitCode"]),
            (_("HOST"), item["host"]),
            ("IP", item["ip"]),
        ]
    )


def _render_groups(items: list[GroupItem]) -> Iterator[RenderableType]:
    rows = [
        [
            item["id"],
            item["name"],
            len(item["workers"]),
            item["effectiveWorldSize"],
            item["masterAddress"],
            item["script"],
            item["task"]["id"] if item["task"] else None,
            output.format_status(item["task"]["status"]) if item["task"] else None,
        ]
        for item in items
    ]
    headers = ["ID", _("NAME"), _("WORKERS"), "WORLD_SIZE", "MASTER_ADDR", _("SCRIPT"), _("TASK"), _("STATUS")]
    yield output.make_table(headers, rows)


def _format_backend(item: GroupItem) -> str:
    used, chosen = item["effectiveBackend"], item["backend"]
    return used if used == chosen else _("BACKEND_WITHOUT_GPU", used=used, set=chosen)


def _render_group(item: GroupItem) -> Iterator[RenderableType]:
    yield output.make_pairs(
        [
            ("ID", item["id"]),
            (_("NAME"), item["name"]),
            ("MASTER_ADDR", item["masterAddress"]),
            ("MASTER_PORT", item["masterPort"]),
            ("WORLD_SIZE", item["effectiveWorldSize"]),
            (_("BACKEND"), _format_backend(item)),
            (_("SCRIPT"), " ".join([item["script"], *item["args"]])),
            (_("TASK"), item["task"]["id"] if item["task"] else None),
            (_("STATUS"), output.format_status(item["task"]["status"]) if item["task"] else None),
        ]
    )
    rows = [[one["id"], one["rank"], one["localRank"], one["nodeRank"], output.format_status(one["status"])]
            for one in item["workers"]]  # fmt: skip
    yield output.make_table([_("WORKER"), "RANK", "LOCAL_RANK", "NODE_RANK", _("STATUS")], rows)
    output.print_warnings([*({**problem, "code": problem["error"]} for problem in item["problems"]), *item["warnings"]])
