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
from fermi.jobs.snapshot import EXECUTABLE, PLAIN, File


def collect(user: User, project: Project, folder: Path, origin: Mapping[str, Any]) -> Snapshot:
    """Store the folder as a snapshot of the project. Raises ApiError if it exceeds a limit."""
    found = dict(_walk(folder, folder))
    manifest = snapshot.dump(found)
    files = uploads.read(manifest)
    store.put_manifest(manifest)
    row = uploads.begin(user, project, snapshot.identity(manifest), files)
    for one, path in found.items():
        if one.sha256 and not store.blob(one.sha256).exists():
            with path.open("rb") as source:
                store.put_blob(source, one.sha256, one.size)
    uploads.own(project, {one.sha256 for one in files if one.sha256})
    return uploads.complete(user, row, origin)


def _walk(top: Path, folder: Path) -> Iterator[tuple[File, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            name = path.relative_to(top).as_posix()
            if entry.is_symlink():
                yield File(name, link=os.readlink(path)), path
            elif entry.is_dir():
                if name != ".git":
                    yield from _walk(top, path)
            elif entry.is_file():
                content = path.read_bytes()
                mode = EXECUTABLE if entry.stat().st_mode & stat.S_IXUSR else PLAIN
                yield File(name, mode, len(content), hashlib.sha256(content).hexdigest()), path
