"""Describes a task's code as engines bring it to their nodes: see `fermi.runner.code_delivery`."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from fermi.jobs.spec import Entrypoint, JobSpec, Problem
from fermi.jobs.user_paths import TREE_FOLDER, TREES_FOLDER
from fermi.runner.code import SnapshotFile
from fermi.runner.code_delivery import AUTO, OFF, REQUIREMENT_FILES, get_named_requirements
from fermi.schema import suggestions

ARCHIVES_FOLDER = "code/archives"
"""In the data directory: a folder for each snapshot. A task sees only its own."""


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Where a node has the code. `root`: the platform's data directory as the node sees it. `run`: the attempt's own
    folder on the node. `python`: the planned interpreter, where not only the runner knows it."""

    root: str
    packages: str
    run: str
    python: str = ""

    def tree(self, job: JobSpec) -> str:
        """Return the folder that the job's ranks start in: one for all nodes and all attempts (see
        `fermi.runner.worktree`)."""
        return f"{self.root.rstrip('/')}/{TREES_FOLDER}/{job.task_id}/{TREE_FOLDER}"

    def chosen(self, node_rank: int) -> str:
        """Return the file in which the node's runner names the interpreter that it chose."""
        return f"{self.run}/python-{node_rank}"

    def order(self, job: JobSpec, node_rank: int) -> dict[str, Any]:
        """Return what a node's spec says of the code; empty for a job without code."""
        if job.code is None:
            return {}
        python = {"python": self.python} if self.python else {}
        code = job.code
        asked = {"snapshot": code.snapshot, "folder": code.folder, "requirements": code.requirements}
        order = {**asked, "cache": self.packages, "chosen": self.chosen(node_rank), **python}
        return {"cwd": self.tree(job), "code": order}


def find_problems(job: JobSpec, files: Iterable[SnapshotFile]) -> list[Problem]:
    """Return what the job names and its snapshot of these files does not have. A module may be an installed one, unless
    its package is in the snapshot."""
    assert job.code
    paths = {one.path for one in files}
    found = []
    entry = job.entrypoint
    scripts = entry.paths if entry and job.brings(entry.script) else ()
    if entry and scripts and paths.isdisjoint(scripts) and not is_installed(entry, paths):
        near = suggestions.suggest_name(scripts[0], paths)
        params = {"script": scripts[0], "snapshot": job.code.snapshot[:12], "nearest": near}
        found.append(Problem(entry.field, "ENTRYPOINT_NOT_IN_CODE", params))
    named = get_named_requirements(job.code.requirements)
    if named and named not in paths:
        params = {"file": named, "snapshot": job.code.snapshot[:12], "nearest": suggestions.suggest_name(named, paths)}
        found.append(Problem("code.requirements", "REQUIREMENTS_NOT_IN_CODE", params))
    return found


def find_warnings(job: JobSpec, files: Iterable[SnapshotFile]) -> list[Problem]:
    """Return a warning of a module that every node has to have, because the snapshot does not."""
    paths = {one.path for one in files}
    entry = job.entrypoint
    if not (entry and is_installed(entry, paths)):
        return []
    params = {"module": entry.module, "nearest": suggestions.suggest_name(entry.paths[0], paths)}
    return [Problem(entry.field, "ENTRYPOINT_MODULE_NOT_IN_CODE", params)]


def has_requirements(requirements: str, paths: Collection[str]) -> bool:
    """Return whether every node installs what a file of the code names before its ranks start
    (`fermi.runner.code_delivery`)."""
    return any(name in paths for name in REQUIREMENT_FILES) if requirements == AUTO else requirements != OFF


def is_installed(entry: Entrypoint, paths: Collection[str]) -> bool:
    """Return whether the entry can only be a module installed on the nodes: nothing of its name is in the snapshot."""
    top = entry.module.partition(".")[0]
    return bool(top) and not any(path.startswith((f"{top}/", f"{top}.py")) for path in paths)
