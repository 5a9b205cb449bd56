"""What a task has written: in FERMI_OUTPUT_DIR, and beside its script."""

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from apps.files.trees import Entry, Tree
from fermi.launch import snapshot
from fermi.launch.userpaths import OUTPUTS, TREE, TREES

LEFT_OUT = frozenset({"__pycache__", ".ipynb_checkpoints"})
"""Folders that Python and Jupyter make beside files."""


class NewFiles(Tree):
    """Of a task's working tree (`fermi.runner.worktree`), what its snapshot does not have, and those of its files that
    have changed since the newest attempt began. Only lists leave out the rest."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / TREE)
        self._beside = Tree(folder)

    @cached_property
    def _known(self) -> tuple[frozenset[str], frozenset[str], float] | None:
        """The snapshot's files and folders, and when they were as they should be, in unix seconds; None where no
        attempt has got so far. What the task has made unreadable counts as empty: its ranks may write there."""
        files: list[snapshot.File] = []
        try:
            ready_at = self._beside.look(f"{TREE}.attempt").at
        except OSError:
            return None
        with suppress(OSError, snapshot.Wrong), self._beside.open(f"{TREE}.manifest") as file:
            files = snapshot.load(file.read())
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
        if entry.path in folders:
            return any(not below.folder for below in self.walk(entry.path))
        return entry.name not in LEFT_OUT


class Written(Tree):
    """Both as one tree, which is read only; where both have a file, that of FERMI_OUTPUT_DIR is shown."""

    def __init__(self, data: Path, task: str) -> None:
        super().__init__(data / OUTPUTS / task)
        self._outputs, self._new = Tree(self.root), NewFiles(data / TREES / task)

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
