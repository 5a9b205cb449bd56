"""Files that a task has written: in FERMI_OUTPUT_DIR, and beside its script."""

import math
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from apps.common.bounds import get_max_manifest_bytes
from fermi.engines.safe_tree import SafeTree, SafeTreeEntry
from fermi.jobs import snapshot
from fermi.jobs.user_paths import OUTPUTS_FOLDER, TREE_FOLDER, TREES_FOLDER


class NewFiles(SafeTree):
    """Files of a task's working tree (`fermi.runner.worktree`) that its snapshot does not have, and files of the
    snapshot that have changed since the newest attempt began. Only listings leave out the rest."""

    def __init__(self, folder: Path, max_names: float = math.inf) -> None:
        super().__init__(folder / TREE_FOLDER, max_names)
        self._beside = SafeTree(folder)
        self._with_new: dict[str, bool] = {}

    @cached_property
    def _known(self) -> tuple[frozenset[str], frozenset[str], float] | None:
        """Files and folders of the snapshot, and when they were complete in unix seconds; None if no attempt has got so
        far. A manifest that the task has made unreadable or too large counts as empty: its ranks may write there."""
        files: list[snapshot.SnapshotFile] = []
        try:
            ready_at = self._beside.get_entry(f"{TREE_FOLDER}.attempt").at
        except OSError:
            return None
        with suppress(OSError, snapshot.ManifestError), self._beside.open(f"{TREE_FOLDER}.manifest") as file:
            said = file.read(get_max_manifest_bytes() + 1)
            files = snapshot.parse_manifest(said) if len(said) <= get_max_manifest_bytes() else []
        paths = frozenset(one.path for one in files)
        return paths, frozenset(folder for path in paths for folder in _list_parents(path)), ready_at

    def list_entries(self, path: str = "") -> list[SafeTreeEntry]:
        return [entry for entry in super().list_entries(path) if self._is_new(entry)]

    def _is_new(self, entry: SafeTreeEntry) -> bool:
        if self._known is None:
            return False
        files, folders, ready_at = self._known
        if not entry.folder:
            return entry.path not in files or entry.at > ready_at
        return (
            self._has_new(entry.path, folders)
            if entry.path in folders
            else entry.name not in snapshot.GENERATED_FOLDERS
        )

    def _has_new(self, folder: str, folders: frozenset[str]) -> bool:
        """Return True if a new file is anywhere below a folder of the snapshot (`folders`), and keep the answer for
        each folder that was listed. The search is depth first: each folder either leads to the first new file or is
        finished."""
        if folder not in self._with_new:
            left, listed, found = [folder], [], ""
            while left and not found:
                listed.append(left.pop())
                with suppress(OSError):
                    for entry in super().list_entries(listed[-1]):
                        if not entry.folder:
                            found = found or (entry.path if self._is_new(entry) else "")
                        elif entry.path in folders or entry.name not in snapshot.GENERATED_FOLDERS:
                            left.append(entry.path)
            above = frozenset(_list_parents(found))
            self._with_new |= {path: path in above for path in listed}
        return self._with_new[folder]


class TaskFiles(SafeTree):
    """Both folders as one tree, read-only except for `remove`, which deletes FERMI_OUTPUT_DIR alone. Where both have a
    file, that of FERMI_OUTPUT_DIR is shown. `max_names`: limit of each of them."""

    def __init__(self, data: Path, task: str, max_names: float = math.inf) -> None:
        super().__init__(data / OUTPUTS_FOLDER / task)
        self._outputs, self._new = SafeTree(self.root, max_names), NewFiles(data / TREES_FOLDER / task, max_names)

    def open(self, path: str) -> BinaryIO:
        try:
            return self._outputs.open(path)
        except OSError:
            return self._new.open(path)

    def get_entry(self, path: str) -> SafeTreeEntry:
        try:
            return self._outputs.get_entry(path)
        except OSError:
            return self._new.get_entry(path)

    def list_entries(self, path: str = "") -> list[SafeTreeEntry]:
        found: dict[str, SafeTreeEntry] | None = None
        for tree in (self._new, self._outputs):
            with suppress(OSError):
                found = (found or {}) | {entry.name: entry for entry in tree.list_entries(path)}
        if found is None:
            raise FileNotFoundError(path)
        return sorted(found.values(), key=lambda entry: (not entry.folder, entry.name))


def _list_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]
