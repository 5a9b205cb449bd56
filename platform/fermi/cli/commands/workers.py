"""Bare-metal workers and their groups."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.reading import settings as key_values
from fermi.cli.texts import _
from fermi.cli.times import short
from fermi.client.types import GroupItem, WorkerItem


@command(
    "workers", _("With an id: `show`, `env` (its process's variables), `delete`. `join-token NAME` lets hosts join.")
)
@click.argument("action", type=click.Choice(["list", "show", "env", "delete", "join-token"]), default="list")
@click.argument("name", required=False)
@click.option("--group", help=_("Id or name of a group; none = in no group."))
@click.option("--node")
@click.option("--status", multiple=True, type=click.Choice(["online", "suspect", "lost", "never"]))
@click.option("--search", help=_("Part of the name or id."))
@click.option("--project", help=_("Of a join token, when you are in several."))
def workers(session: Session, action: str, name: str | None, project: str | None, **filters: Any) -> None:
    api = session.fermi.workers
    if action == "list":
        items = list(api.list(**filters))
        output.show({"items": items, "total": len(items)}, session.form, lambda: _workers(items))
        return
    if not name:
        raise click.UsageError(_("Say which: `fermi workers {action} NAME`.", action=action))
    if action == "show":
        found = api.get(name)
        output.show(found, session.form, lambda: _worker(found))
    elif action == "env":
        seen = api.environment(name)
        output.warn({**problem, "code": problem["error"]} for problem in seen["problems"])
        output.show(seen, session.form, lambda: [output.pairs(sorted(seen["env"].items()))])
    elif action == "delete":
        api.delete(name)
        output.say(_("{id} is deleted.", id=name))
    else:
        made = api.create_join_token(name, project=project)
        output.show(made, session.form, lambda: [output.pairs([("ID", made["id"]), (_("Token"), made["token"])])])
        output.say(_("On a host: {command}", command=made["command"]))


@command(
    "groups",
    _(
        "`create NAME` and `edit GROUP` take the settings; `move GROUP WORKER…` (GROUP none: out of any); "
        "`start`, `stop`, `restart`, `delete GROUP`. GROUP is an id or a name."
    ),
)
@click.argument(
    "action",
    type=click.Choice(["list", "show", "create", "edit", "delete", "move", "start", "stop", "restart"]),
    default="list",
)
@click.argument("name", required=False)
@click.argument("workers", nargs=-1)
@click.option("--rename", help=_("Another name."))
@click.option("--master", help=_("The master's node, without -number."))
@click.option("--world-size", type=int, help=_("How many processes; 0 = as many as workers."))
@click.option("--port", type=int, help=_("Of the master; 29500 by default."))
@click.option("--backend", type=click.Choice(["nccl", "gloo"]))
@click.option("--script", help=_("Relative to the workspace on the hosts."))
@click.option("--arg", "args", multiple=True, help=_("An argument of the script; may repeat."))
@click.option("--env", multiple=True, metavar="NAME=VALUE", help=_("An environment variable of the training."))
@click.option(
    "--secret-env",
    multiple=True,
    metavar="NAME=SECRET",
    help=_("A variable that gets a secret of the project, by its name."),
)
@click.option("--max-restarts", type=int)
@click.option("--project", help=_("Of a new group, when you are in several."))
def groups(
    session: Session, action: str, name: str | None, workers: tuple[str, ...], project: str | None, **given: Any
) -> None:
    api = session.fermi.groups
    if action == "list":
        items = list(api.list())
        output.show({"items": items, "total": len(items)}, session.form, lambda: _groups(items))
        return
    if not name:
        raise click.UsageError(_("Say which: `fermi groups {action} NAME`.", action=action))
    if action == "create":
        new: Any = {"name": name, "workerIds": [*workers], **_settings(given)}
        made = api.create(new | {"projectId": project} if project else new)
        output.show(made, session.form, lambda: _group(made))
        return
    group_id = None if action == "move" and name == "none" else _group_id(session, name)
    if action == "move":
        api.move(workers, group_id)
        output.say(_("{count} workers moved.", count=len(workers)))
        return
    assert group_id is not None
    if action == "delete":
        api.delete(group_id)
        output.say(_("{id} is deleted.", id=name))
        return
    steer = {"show": api.get, "start": api.start, "stop": api.stop, "restart": api.restart}
    found = api.update(group_id, _changes(given)) if action == "edit" else steer[action](group_id)
    output.show(found, session.form, lambda: _group(found))


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """In the API's names; what was not given is left out."""
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


def _changes(given: dict[str, Any]) -> Any:
    return {**_settings(given), **({"name": given["rename"]} if given["rename"] else {})}


def _group_id(session: Session, name: str) -> str:
    """An id stands for itself, a name for the one group that bears it."""
    found = [item["id"] for item in session.fermi.groups.list(search=name) if item["name"] == name]
    if len(found) > 1:
        kind, ids = _("group"), ", ".join(found)
        raise click.UsageError(_("{name!r} is the name of more than one {kind}: {ids}", name=name, kind=kind, ids=ids))
    return found[0] if found else name


def _workers(items: list[WorkerItem]) -> Iterator[RenderableType]:
    rows = [
        [
            item["id"],
            output.status(item["status"]),
            None if item["heartbeatAgeSeconds"] is None else short(item["heartbeatAgeSeconds"]),
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
        _("Worker"),
        _("Status"),
        _("Last heard"),
        _("Group"),
        "RANK",
        _("Process"),
        _("Task"),
        "GPU %",
        "GPU MB",
    ]
    yield output.table([*headers, _("Host")], rows)


def _worker(item: WorkerItem) -> Iterator[RenderableType]:
    yield output.pairs(
        [
            (_("Worker"), item["id"]),
            (_("Status"), output.status(item["status"])),
            (_("Group"), item["group"]["name"] if item["group"] else None),
            ("RANK", item["rank"]),
            ("LOCAL_RANK", item["localRank"]),
            ("NODE_RANK", item["nodeRank"]),
            ("WORLD_SIZE", item["worldSize"]),
            ("GPU", item["gpu"]),
            (_("Process"), item["process"]["state"]),
            (_("Task"), item["process"]["taskId"]),
            ("PID", item["process"]["pid"]),
            (_("Exit code"), item["process"]["exitCode"]),
            (_("Host"), item["host"]),
            ("IP", item["ip"]),
        ]
    )


def _groups(items: list[GroupItem]) -> Iterator[RenderableType]:
    rows = [
        [
            item["id"],
            item["name"],
            len(item["workers"]),
            item["effectiveWorldSize"],
            item["masterAddress"],
            item["script"],
            item["task"]["id"] if item["task"] else None,
            output.status(item["task"]["status"]) if item["task"] else None,
        ]
        for item in items
    ]
    headers = ["ID", _("Name"), _("Workers"), "WORLD_SIZE", "MASTER_ADDR", _("Script"), _("Task"), _("Status")]
    yield output.table(headers, rows)


def _group(item: GroupItem) -> Iterator[RenderableType]:
    yield output.pairs(
        [
            ("ID", item["id"]),
            (_("Name"), item["name"]),
            ("MASTER_ADDR", item["masterAddress"]),
            ("MASTER_PORT", item["masterPort"]),
            ("WORLD_SIZE", item["effectiveWorldSize"]),
            (_("Backend"), item["backend"]),
            (_("Script"), " ".join([item["script"], *item["args"]])),
            (_("Task"), item["task"]["id"] if item["task"] else None),
            (_("Status"), output.status(item["task"]["status"]) if item["task"] else None),
        ]
    )
    rows = [[one["id"], one["rank"], one["localRank"], one["nodeRank"], output.status(one["status"])]
            for one in item["workers"]]  # fmt: skip
    yield output.table([_("Worker"), "RANK", "LOCAL_RANK", "NODE_RANK", _("Status")], rows)
    output.warn([*({**problem, "code": problem["error"]} for problem in item["problems"]), *item["warnings"]])
