"""What the platform knows of a job beside what its ranks printed: it says what an error means here. Pure.

emulated     processors stand in for the node's GPUs
withoutGpu   so it is, or the node has none
inCode       a module that was not found lies in this folder of the code
leftOut      a file or module that was not found is left out of the code by this line of an ignore file
notSent      a file that was not found is none of this snapshot's
refused      its confinement keeps the rank from the path: `hidden`, or `readOnly` where it may read it
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Self

from fermi.jobs.snapshot import File
from fermi.jobs.spec import JobSpec, RankSeen
from fermi.runner.gitignore import Rules
from fermi.runner.tree import IGNORES

MAX_IGNORES, MAX_IGNORE_BYTES = 256, 32 << 10
"""Of a snapshot's ignore files together: where there are more, which nobody writes by hand, none is read."""
MAX_PATH, MAX_FOLDERS = 255, 32
"""Of a path that is compared with their lines: what a rank prints may be longer."""


@dataclass(frozen=True)
class Sent:
    """The files of a snapshot of code. `ignores`: the texts of the ignore files among them, by path."""

    snapshot: str
    paths: Collection[str]
    ignores: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: str, files: Iterable[File], read: Callable[[str], bytes]) -> Self:
        """`read`: gives the content with that SHA-256. Raises OSError."""
        known = [*files]
        ignoring = [one for one in known if one.size and PurePosixPath(one.path).name in IGNORES]
        few = len(ignoring) <= MAX_IGNORES and sum(one.size for one in ignoring) <= MAX_IGNORE_BYTES
        texts = {one.path: read(one.sha256).decode(errors="replace") for one in ignoring if few}
        return cls(snapshot, frozenset(one.path for one in known), texts)

    def inside(self, path: str, frames: Iterable[str]) -> str:
        """Returns a path as it is within the code, "" where it lies elsewhere. `frames`: files of a traceback, by
        which it is known where the code lay."""
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

    def left_out_by(self, path: str) -> str:
        """Returns the line that leaves a path within the code out, and its file: `data/ (.gitignore)`; "" where none
        does, or the path is too long. Whether the path is a folder's is not known, so it counts as either."""
        parts = path.split("/")
        if len(path) > MAX_PATH or len(parts) > MAX_FOLDERS:
            return ""
        tops = ["/".join(parts[:count]) + "/" for count in range(1, len(parts) + 1)]
        for one in (*tops, path):
            if line := self._line_about(one):
                return line
        return ""

    def _line_about(self, path: str) -> str:
        """As `fermi.runner.tree` decides: the innermost folder that says something, and there the last line."""
        for folder, name, lines in self._rules:
            if path.startswith(folder):
                for line, rule in reversed(lines):
                    if (said := rule.says(path[len(folder) :])) is not None:
                        return f"{line.strip()} ({folder}{name})" if said else ""
        return ""

    @cached_property
    def _rules(self) -> list[tuple[str, str, list[tuple[str, Rules]]]]:
        found = []
        for path, text in self.ignores.items():
            folder, _, name = path.rpartition("/")
            lines = [(line, Rules([line])) for line in text.removeprefix("\ufeff").split("\n")]
            found.append((f"{folder}/" if folder else "", name, lines))
        return sorted(found, key=lambda one: (-len(one[0]), -IGNORES.index(one[1])))

    def folder_of(self, module: str) -> str | None:
        """Returns the folder in which `module` could be imported, "." for the code's own; None where it is not in the
        code."""
        name = module.replace(".", "/")
        ends = (f"{name}.py", f"{name}/__init__.py")
        folders = {path[: -len(end)] for path in self.paths for end in ends if f"/{path}".endswith(f"/{end}")}
        if not folders:  # a package without `__init__.py`
            folders = {f"/{path}".partition(f"/{name}/")[0].lstrip("/") for path in self.paths
                       if path.endswith(".py") and f"/{name}/" in f"/{path}"}  # fmt: skip
        return (min(folders, key=lambda one: (one.count("/"), one)).rstrip("/") or ".") if folders else None


class Facts:
    """Of one job. `sent`: its code, which is asked for only where it matters; None: it has none, or it is not known."""

    def __init__(self, job: JobSpec | None = None, sent: Callable[[], Sent | None] = lambda: None) -> None:
        self._nodes = {node.name: node for node in job.nodes} if job else {}
        self._ask = sent

    @cached_property
    def _sent(self) -> Sent | None:
        return self._ask()

    def about(self, seen: RankSeen, name: str, params: Mapping[str, str], frames: Iterable[str] = ()) -> dict[str, Any]:
        """Returns what is known of what a rule found in what a rank on the node `name` printed: `params` are the
        rule's. `frames`: the files of the traceback."""
        return dict(self._about(seen, name, params, [*frames]))

    def _about(
        self, seen: RankSeen, name: str, params: Mapping[str, str], frames: list[str]
    ) -> Iterator[tuple[str, Any]]:
        node = self._nodes.get(name)
        if node and not node.has_cuda:
            yield "withoutGpu", True
            if node.emulated:
                yield "emulated", True
        refused = (seen.error or {}).get("refused")
        if refused and "path" in params:
            yield "refused", refused
        elif "path" in params and (sent := self._sent) and (path := sent.inside(params["path"], frames)):
            if line := sent.left_out_by(path):
                yield "leftOut", line
            elif path not in sent.paths:
                yield "notSent", sent.snapshot[:12]
        if "module" in params and (sent := self._sent):
            if (folder := sent.folder_of(params["module"])) is not None:
                yield "inCode", folder
            elif line := sent.left_out_by(params["module"].replace(".", "/")):
                yield "leftOut", line
