"""Commands for code snapshots: list, show, compare, download."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from fermi.characters import escape_name
from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_age
from fermi.jobs import snapshot

ACTIONS = click.Choice(["list", "show", "diff", "send"])
_SNAPSHOT_ID = re.compile(r"[0-9a-f]{8,64}")


@command("code", _("MORE_CODE"))
@click.argument("action", type=ACTIONS)
@click.argument("of", nargs=-1, metavar="[TASK|SNAPSHOT|FOLDER]…")
@click.option("--path", default="", metavar="FILE|FOLDER", help=_("OPTION_CODE_PATH"))
@click.option("--project", help=_("OPTION_SUBMIT_PROJECT"))
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
def code(session: Session, action: str, of: tuple[str, ...], path: str, project: str | None, limit: int) -> None:
    if action == "list":
        found = session.fermi.code.list(project=project).first(limit)
        output.print_result(found, session.form, lambda: _render_snapshots(found))
    elif action == "send":
        from fermi.cli import snapshots

        sent = snapshots.send_snapshot(session.fermi, of[0] if of else ".", project)
        output.print_result(sent, session.form, lambda: [output.make_line(sent["id"])])
    elif not of:
        raise click.UsageError(_("CODE_OF_WHAT"))
    elif action == "show":
        _print_snapshot(session, of[0], path)
    else:
        _print_diff(session, of)


def _render_snapshots(snapshots: list[Any]) -> Iterator[RenderableType]:
    rows = [
        [one["id"][:12], one["files"], f"{one['sizeBytes'] / (1 << 20):.1f}", describe_origin(one["origin"]),
         one["createdBy"], format_age(one["createdAt"])]
        for one in snapshots
    ]  # fmt: skip
    yield output.make_table(["ID", _("FILES"), "MiB", _("ORIGIN"), _("OWNER"), _("CREATED")], rows)


def describe_origin(origin: Any) -> str:
    commit = origin["commit"][:10] + ("+" if origin["dirty"] else "")
    words = (origin["url"] or origin["environment"] or origin["kind"], origin["branch"], commit)
    return " ".join(filter(None, words))


def resolve_snapshot(session: Session, key: str) -> str:
    """Return the id of the snapshot, or of the task's snapshot."""
    if _SNAPSHOT_ID.fullmatch(key):
        return key
    found = session.fermi.tasks.code(key)["snapshot"]
    if found is None:
        raise click.UsageError(_("CODE_NONE", task=key))
    return str(found["id"])


def _print_snapshot(session: Session, key: str, path: str) -> None:
    found = resolve_snapshot(session, key)
    if path and not path.endswith("/"):
        file: Any = session.fermi.code.file(found, path)
        output.print_result(
            file, session.form, lambda: [output.make_line((file["text"] or _("CODE_BINARY")).rstrip("\n"))]
        )
        return
    item, tree = session.fermi.code.get(found), session.fermi.code.tree(found, path)

    def render() -> Iterator[RenderableType]:
        yield output.make_pairs(
            [("ID", item["id"]), (_("FILES"), item["files"]), (_("ORIGIN"), describe_origin(item["origin"]))]
        )
        rows: list[list[output.Cell]] = [
            [escape_name(one["name"]) + ("/" if one["kind"] == "folder" else ""), one["sizeBytes"]]
            for one in tree["items"]
        ]
        yield output.make_table([_("NAME"), "bytes"], rows)

    output.print_result({**item, "tree": tree["items"]}, session.form, render)


def _print_diff(session: Session, of: tuple[str, ...]) -> None:
    """Print what changed since the previous task with the same name."""
    after = resolve_snapshot(session, of[-1])
    if len(of) > 1:
        before = resolve_snapshot(session, of[0])
    else:
        previous = None if _SNAPSHOT_ID.fullmatch(of[0]) else session.fermi.tasks.code(of[0])["previous"]
        if previous is None:
            raise click.UsageError(_("CODE_NO_PREVIOUS", task=of[0]))
        before = previous["snapshotId"]
    found = session.fermi.code.diff(before, after)

    def render() -> Iterator[RenderableType]:
        for one in found["items"]:
            why = _("CODE_BINARY") if one["binary"] else ""
            yield output.make_line(
                one["diff"].rstrip("\n") or f"{one['change']}: {escape_name(one['path'])} {why}".rstrip()
            )

    output.print_result(found, session.form, render)


def extract_snapshot(session: Session, key: str, folder: str | None) -> None:
    """Download the snapshot into a folder that is missing or empty, and verify every file."""
    found = session.fermi.code.get(resolve_snapshot(session, key))["id"]
    target = Path(folder or found[:12])
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise click.UsageError(_("FOLDER_EXISTS_NEVER", folder=target))
    manifest = session.fermi.code.manifest(found)
    if snapshot.compute_snapshot_id(manifest) != found:
        raise click.UsageError(_("CODE_DIFFERS", id=found[:12]))
    with tempfile.TemporaryFile() as archive:
        session.fermi.code.archive(found, archive)
        archive.seek(0)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rmdir()
        try:
            snapshot.extract_archive(archive, snapshot.parse_manifest(manifest), str(target), "code.tar")
        except (snapshot.CodeDeliveryError, snapshot.ManifestError) as error:
            raise click.UsageError(_("CODE_DIFFERS", id=str(error))) from error
    output.print_message(_("CODE_BROUGHT", id=found[:12], folder=target))
