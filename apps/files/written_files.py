"""Files that a task has written: in FERMI_OUTPUT_DIR, and beside its script."""

import math
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from apps.common.bounds import max_manifest
from fermi.engines.safe_tree import Entry, Tree
from fermi.jobs import snapshot
from fermi.jobs.user_paths import OUTPUTS, TREE, TREES


class NewFiles(Tree):
    """Files of a task's working tree (`fermi.runner.worktree`) that its snapshot does not have, and files of the
    snapshot that have changed since the newest attempt began. Only listings leave out the rest."""

    def __init__(self, folder: Path, most: float = math.inf) -> None:
        super().__init__(folder / TREE, most)
        self._beside = Tree(folder)
        self._with_new: dict[str, bool] = {}

    @cached_property
    def _known(self) -> tuple[frozenset[str], frozenset[str], float] | None:
        """Files and folders of the snapshot, and when they were complete in unix seconds; None if no attempt has got so
        far. A manifest that the task has made unreadable or too large counts as empty: its ranks may write there."""
        files: list[snapshot.File] = []
        try:
            ready_at = self._beside.look(f"{TREE}.attempt").at
        except OSError:
            return None
        with suppress(OSError, snapshot.Wrong), self._beside.open(f"{TREE}.manifest") as file:
            said = file.read(max_manifest() + 1)
            files = snapshot.load(said) if len(said) <= max_manifest() else []
        paths = frozenset(one.path for one in files)
        return paths, frozenset(folder for path in paths for folder in _above(path)), ready_at

    def entries(self, path: str = "") -> list[Entry]:
        return [entry for entry in super().entries(path) if self._is_new(entry)]

    def _is_new(self, entry: Entry) -> bool:
        if self._known is None:
            return False
        files, folders, ready_at = self._known
        if not entry.folder:
            return entry.path not in files or entry.at > ready_at
        return self._has_new(entry.path, folders) if entry.path in folders else entry.name not in snapshot.MADE_BESIDE

    def _has_new(self, folder: str, folders: frozenset[str]) -> bool:
        """Return True if a new file is anywhere below a folder of the snapshot (`folders`), and keep the answer for
        each folder that was listed. The search is depth first: each folder either leads to the first new file or is
        finished."""
        if folder not in self._with_new:
            left, listed, found = [folder], [], ""
            while left and not found:
                listed.append(left.pop())
                with suppress(OSError):
                    for entry in super().entries(listed[-1]):
                        if not entry.folder:
                            found = found or (entry.path if self._is_new(entry) else "")
                        elif entry.path in folders or entry.name not in snapshot.MADE_BESIDE:
                            left.append(entry.path)
            above = frozenset(_above(found))
            self._with_new |= {path: path in above for path in listed}
        return self._with_new[folder]


class Written(Tree):
    """Both folders as one tree, read-only except for `remove`, which deletes FERMI_OUTPUT_DIR alone. Where both have a
    file, that of FERMI_OUTPUT_DIR is shown. `max_names`: limit of each of them."""

    def __init__(self, data: Path, task: str, most: float = math.inf) -> None:
        super().__init__(data / OUTPUTS / task)
        self._outputs, self._new = Tree(self.root, most), NewFiles(data / TREES / task, most)

    def open(self, path: str) -> BinaryIO:
        try:
            return self._outputs.open(path)
        except OSError:
            return self._new.open(path)

    def look(self, path: str) -> Entry:
        try:
            return self._outputs.look(path)
        except OSError:
            return self._new.look(path)

    def entries(self, path: str = "") -> list[Entry]:
        found: dict[str, Entry] | None = None
        for tree in (self._new, self._outputs):
            with suppress(OSError):
                found = (found or {}) | {entry.name: entry for entry in tree.entries(path)}
        if found is None:
            raise FileNotFoundError(path)
        return sorted(found.values(), key=lambda entry: (not entry.folder, entry.name))


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]
