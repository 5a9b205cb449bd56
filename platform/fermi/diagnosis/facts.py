"""Adds what the platform knows of a job to what its ranks printed, which explains what an error means here. Pure.

emulated     processors stand in for the node's GPUs
withoutGpu   the node has no GPU, or an emulated one
inCode       a module that was not found is in this folder of the code
leftOut      a file or module that was not found is excluded from the code by this line of an ignore file
notSent      a file that was not found is not in this snapshot
refused      the rank's sandbox denies access to the path: `hidden`, or `readOnly` where it may read it
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Self

from fermi.jobs.snapshot import SnapshotFile
from fermi.jobs.spec import JobSpec, RankStatus
from fermi.runner.gitignore import IgnoreRules
from fermi.runner.tree import IGNORE_FILES

MAX_IGNORES, MAX_IGNORE_BYTES = 256, 32 << 10
"""Number and bytes of a snapshot's ignore files, together; with more, which nobody writes by hand, none is read."""
MAX_PATH, MAX_FOLDERS = 255, 32
"""Characters and folders of a path that is matched against ignore files: what a rank prints may be longer."""


@dataclass(frozen=True)
class SentCode:
    """The files of a snapshot of code. `ignores`: the texts of the ignore files among them, by path."""

    snapshot: str
    paths: Collection[str]
    ignores: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, snapshot: str, files: Iterable[SnapshotFile], read: Callable[[str], bytes]) -> Self:
        """Return the files of a snapshot. `read` returns the content with that SHA-256, and raises OSError."""
        known = [*files]
        ignoring = [one for one in known if one.size and PurePosixPath(one.path).name in IGNORE_FILES]
        few = len(ignoring) <= MAX_IGNORES and sum(one.size for one in ignoring) <= MAX_IGNORE_BYTES
        texts = {one.path: read(one.sha256).decode(errors="replace") for one in ignoring if few}
        return cls(snapshot, frozenset(one.path for one in known), texts)

    def inside(self, path: str, frames: Iterable[str]) -> str:
        """Return a path as it is within the code, "" where it is elsewhere. `frames`: files of a traceback, which show
        where the code was."""
        if not path.startswith("/"):
            found = PurePosixPath(path)
            return "" if ".." in found.parts else str(found)
        for file in frames:
            parts = file.split("/")
            tails = ("/".join(parts[at:]) for at in range(1, len(parts)))
            if own := next((tail for tail in tails if tail in self.paths), ""):
                folder = file.removesuffix(own)
                return path.removeprefix(folder) if path.startswith(folder) else ""
        return ""

    def find_ignore_line(self, path: str) -> str:
        """Return the line that excludes a path from the code, and its file: `data/ (.gitignore)`; "" where none does,
        or the path is too long. Whether the path is a folder's is unknown, so it counts as either."""
        parts = path.split("/")
        if len(path) > MAX_PATH or len(parts) > MAX_FOLDERS:
            return ""
        tops = ["/".join(parts[:count]) + "/" for count in range(1, len(parts) + 1)]
        for one in (*tops, path):
            if line := self._line_about(one):
                return line
        return ""

    def _line_about(self, path: str) -> str:
        """Return the line that excludes the path. As `fermi.runner.tree` decides: the innermost folder with a matching
        line, and there the last line."""
        for folder, name, lines in self._rules:
            if path.startswith(folder):
                for line, rule in reversed(lines):
                    if (said := rule.says(path[len(folder) :])) is not None:
                        return f"{line.strip()} ({folder}{name})" if said else ""
        return ""

    @cached_property
    def _rules(self) -> list[tuple[str, str, list[tuple[str, IgnoreRules]]]]:
        found = []
        for path, text in self.ignores.items():
            folder, _, name = path.rpartition("/")
            lines = [(line, IgnoreRules([line])) for line in text.removeprefix("\ufeff").split("\n")]
            found.append((f"{folder}/" if folder else "", name, lines))
        return sorted(found, key=lambda one: (-len(one[0]), -IGNORE_FILES.index(one[1])))

    def folder_of(self, module: str) -> str | None:
        """Return the folder from which `module` could be imported, "." for the code's own; None where it is not in the
        code."""
        name = module.replace(".", "/")
        ends = (f"{name}.py", f"{name}/__init__.py")
        folders = {path[: -len(end)] for path in self.paths for end in ends if f"/{path}".endswith(f"/{end}")}
        if not folders:  # a package without `__init__.py`
            folders = {f"/{path}".partition(f"/{name}/")[0].lstrip("/") for path in self.paths
                       if path.endswith(".py") and f"/{name}/" in f"/{path}"}  # fmt: skip
        return (min(folders, key=lambda one: (one.count("/"), one)).rstrip("/") or ".") if folders else None


class JobFacts:
    """What is known of one job. `sent`: returns its code, called only where it matters; None: it has none, or it is
    unknown."""

    def __init__(self, job: JobSpec | None = None, sent: Callable[[], SentCode | None] = lambda: None) -> None:
        self._nodes = {node.name: node for node in job.nodes} if job else {}
        self._ask = sent

    @cached_property
    def _sent(self) -> SentCode | None:
        return self._ask()

    def about(
        self, rank: RankStatus, name: str, params: Mapping[str, str], frames: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return what is known of an error that a rule found in the output of a rank on the node `name`. `params`: the
        rule's; `frames`: the files of the traceback."""
        return dict(self._about(rank, name, params, [*frames]))

    def _about(
        self, rank: RankStatus, name: str, params: Mapping[str, str], frames: list[str]
    ) -> Iterator[tuple[str, Any]]:
        node = self._nodes.get(name)
        if node and not node.has_cuda:
            yield "withoutGpu", True
            if node.emulated:
                yield "emulated", True
        refused = (rank.error or {}).get("refused")
        if refused and "path" in params:
            yield "refused", refused
        elif "path" in params and (sent := self._sent) and (path := sent.inside(params["path"], frames)):
            if line := sent.find_ignore_line(path):
                yield "leftOut", line
            elif path not in sent.paths:
                yield "notSent", sent.snapshot[:12]
        if "module" in params and (sent := self._sent):
            if (folder := sent.folder_of(params["module"])) is not None:
                yield "inCode", folder
            elif line := sent.find_ignore_line(params["module"].replace(".", "/")):
                yield "leftOut", line
