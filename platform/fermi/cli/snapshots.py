"""A folder of this machine, uploaded as a code snapshot (see `fermi.runner.tree`)."""

from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from fermi import messages
from fermi.cli import texts
from fermi.cli.output import print_message
from fermi.cli.texts import _
from fermi.client.client import Fermi
from fermi.client.types import SnapshotItem, SnapshotMissing
from fermi.jobs import snapshot
from fermi.runner import tree


def send_snapshot(fermi: Fermi, folder: str, project: str | None) -> SnapshotItem:
    """Upload the folder and return the snapshot. Raise click.UsageError for a folder that cannot be a snapshot."""
    top = Path(folder).resolve()
    if not top.is_dir():
        raise click.UsageError(_("CODE_NO_FOLDER", folder=folder))
    limits = fermi.code.limits()
    try:
        found = tree.list_files(top)
        tree.check_limits({"files": limits["files"], "fileMb": limits["fileMb"], "totalMb": limits["totalMb"]}, found)
        files = [*tree.hash_files(top, found)]
        manifest = snapshot.serialize_manifest(files)
        snapshot.parse_manifest(manifest)
    except snapshot.ManifestError as error:
        raise click.UsageError(_render_text(error.code, error.params)) from error
    places = {one.path: one.where for one in found}
    contents = {one.sha256: (one.size, partial(_open_file, places[one.path])) for one in files if one.sha256}
    origin, patch = tree.read_origin(top)
    key = snapshot.compute_snapshot_id(manifest)

    def print_missing(missing: SnapshotMissing) -> None:
        if missing["missing"]:
            print_message(
                _("CODE_SENDING", count=len(missing["missing"]), size=f"{missing['missingBytes'] / tree.MIB:.1f}")
            )

    sent = fermi.code.put(key, manifest, contents, project=project, origin=origin, patch=patch, said=print_missing)
    print_message(_("CODE_SENT", id=sent["id"][:12], files=sent["files"], size=f"{sent['sizeBytes'] / tree.MIB:.1f}"))
    return sent


def _open_file(path: Path) -> IO[bytes]:
    return path.open("rb")


def _render_text(code: str, params: Any) -> str:
    return " ".join(filter(None, messages.render_text(code, texts.get_language(), **params)))
