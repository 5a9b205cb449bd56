"""Takes a snapshot of a folder of this machine."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from apps.accounts.models import Project, User
from apps.code import store, uploads
from apps.code.models import Snapshot
from fermi.jobs import snapshot
from fermi.jobs.snapshot import EXECUTABLE_MODE, PLAIN_MODE, SnapshotFile


def create_snapshot(user: User, project: Project, folder: Path, origin: Mapping[str, Any]) -> Snapshot:
    """Store the folder as a snapshot of the project. Raises ApiError if it exceeds a limit."""
    found = dict(_walk_folder(folder, folder))
    manifest = snapshot.serialize_manifest(found)
    files = uploads.parse_manifest(manifest)
    store.write_manifest(manifest)
    row = uploads.start_snapshot(user, project, snapshot.compute_snapshot_id(manifest), files)
    for one, path in found.items():
        if one.sha256 and not store.get_blob_path(one.sha256).exists():
            with path.open("rb") as source:
                store.write_blob(source, one.sha256, one.size)
    uploads.record_blobs(project, {one.sha256 for one in files if one.sha256})
    return uploads.complete_snapshot(user, row, origin)


def _walk_folder(top: Path, folder: Path) -> Iterator[tuple[SnapshotFile, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            name = path.relative_to(top).as_posix()
            if entry.is_symlink():
                yield SnapshotFile(name, link=os.readlink(path)), path
            elif entry.is_dir():
                if name != ".git":
                    yield from _walk_folder(top, path)
            elif entry.is_file():
                content = path.read_bytes()
                mode = EXECUTABLE_MODE if entry.stat().st_mode & stat.S_IXUSR else PLAIN_MODE
                yield SnapshotFile(name, mode, len(content), hashlib.sha256(content).hexdigest()), path
