"""Files that are sent into an environment that does not see the platform's data directory, before its ranks start: the
task's code, the data that it reads, what it resumes from, and what its ranks have written on other nodes.

    resumes from a path of its own      what lies there, and the small files at the top of its folder of checkpoints
                                        (DeepSpeed's `latest`)
    does not                            its folder of checkpoints, and what its ranks have written beside the script
    resumes from another task's path    what lies there
    came after another task             that one's checkpoint and outputs
    reads                               of `datasets/` and `workspace/`: the whole folder in there

Files that exist there with the same size and time are not sent again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermi.engines.inside.download import TransferLimits
from fermi.engines.safe_tree import SafeTree, SafeTreeEntry
from fermi.jobs.spec import JobSpec
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, TASK_FOLDERS, TREE_FOLDER, TREES_FOLDER
from fermi.runner.run_names import parse_run_name
from fermi.schema import humanize

SHARED_FOLDERS = ("datasets", "workspace")
"""Folders of the data directory that every member may use (`apps.catalog.sources`)."""
MAX_SMALL_BYTES = 1 << 20
MAX_FILES = 10_000


@dataclass(frozen=True, slots=True)
class UploadFile:
    """File to be sent. `path`: below the data directory, here and there."""

    path: str
    tree: SafeTree
    entry: SafeTreeEntry


def list_read_paths(job: JobSpec, *roots: str) -> tuple[list[str], str]:
    """Return what the job reads of the platform's data, as paths below the data directory (`roots`: how its paths may
    have that), and the first path that users may not read from there (empty: none)."""
    found, entry = dict[str, None](), job.entrypoint
    script = entry.script if entry and not job.brings(entry.script) else ""
    named = [job.train_data, job.valid_data, script, *(entry.args if entry else ()), *map(str, job.env.values())]
    for path in (one.rpartition("=")[2] for one in named):
        if (parts := _split_below(path, roots)) is None:
            continue
        if parts[0] not in SHARED_FOLDERS or len(parts) < 2 or any(part in ("", ".", "..") for part in parts):
            return [], path
        found["/".join(parts[:2])] = None
    return list(found), ""


def list_parent_paths(job: JobSpec, root: str) -> list[str]:
    """Return what the job was given of the task that it came after, as paths below the data directory `root`."""
    found = (_split_below(path, [root]) for path in (job.after_checkpoint, job.after_outputs))
    return ["/".join(parts) for parts in found if parts and len(parts) > 1 and parts[0] in TASK_FOLDERS]


def _split_below(path: str, roots: Iterable[str]) -> list[str] | None:
    """Return the parts of a path below the data directory; None where it does not lie there."""
    for top in (f"{root.rstrip('/')}/" for root in roots if root):
        if path.startswith(top):
            return path.removeprefix(top).split("/")
    return None


def find_upload_problem(job: JobSpec, data_dir: Path, limits: TransferLimits, *roots: str) -> dict[str, Any] | None:
    """Return why what a job reads cannot be sent, as the parameters of the text of INSIDE_WITHOUT_DATA; None: it
    can."""
    wanted, closed = list_read_paths(job, *roots)
    if closed:
        return {"path": closed}
    resume = _split_below(job.resume_from, roots)
    own = resume and len(resume) > 2 and resume[0] in TASK_FOLDERS and resume[1] != job.task_id
    for paths, limit in ((wanted, limits.data), (["/".join(resume or ())] if own else [], limits.folder)):
        size = count = 0
        for item in (item for path in paths for item in _iterate_below(data_dir, path)):
            size, count = size + item.entry.size, count + 1
            if size > limit or count > MAX_FILES:
                about = (
                    {"size": humanize.format_bytes(size), "limit": humanize.format_bytes(limit)} if size > limit else {}
                )
                return {"path": f"{data_dir}/{item.path}", **about}
    return None


def list_upload_files(order: Mapping[str, Any], data_dir: Path) -> list[UploadFile]:
    """Return the files for an order (`inside.render`), each once, the first `MAX_FILES`."""
    found = dict[str, UploadFile]()
    for item in _iterate_files(order, data_dir):
        if not item.entry.folder and not item.entry.name.startswith(".nfs"):
            found.setdefault(item.path, item)
        if len(found) >= MAX_FILES:
            break
    return list(found.values())


def _iterate_files(order: Mapping[str, Any], data_dir: Path) -> Iterator[UploadFile]:
    task, root, resume = parse_run_name(order["name"])[0], order["root"].rstrip("/"), str(order.get("resume") or "")
    below = resume.removeprefix(f"{root}/") if root and resume.startswith(f"{root}/") else ""
    top, tree = f"{CHECKPOINTS_FOLDER}/{task}", f"{TREES_FOLDER}/{task}/{TREE_FOLDER}"
    if below.startswith(tuple(f"{folder}/" for folder in TASK_FOLDERS)):
        yield from _iterate_below(data_dir, below)
    if below.startswith((f"{top}/", f"{tree}/")):
        yield from (item for item in _iterate_folder(data_dir, top) if item.entry.size <= MAX_SMALL_BYTES)
    else:
        yield from _iterate_below(data_dir, top)
        yield from _iterate_below(data_dir, tree)
    for path in order.get("reads") or ():
        yield from _iterate_below(data_dir, path)


def _iterate_below(data_dir: Path, path: str) -> Iterator[UploadFile]:
    """Yield a file, or those in a folder. Links are not followed, nor those of a task's folder."""
    first, second, *rest = path.split("/")
    top, inner = SafeTree(data_dir / first / second), "/".join(rest)
    if not rest:  # it may be a file in an open folder
        try:
            entry = SafeTree(data_dir / first).get_entry(second)
        except OSError:
            return
        if not entry.folder:
            yield UploadFile(path, SafeTree(data_dir / first), entry)
            return
    try:
        entry = top.get_entry(inner)
    except OSError:
        return
    for one in top.walk(inner) if entry.folder else [entry]:
        if not one.folder:
            yield UploadFile(f"{first}/{second}/{one.path}", top, one)


def _iterate_folder(data_dir: Path, path: str) -> Iterator[UploadFile]:
    tree = SafeTree(data_dir / path)
    try:
        entries = tree.list_entries()
    except OSError:
        return
    yield from (UploadFile(f"{path}/{one.path}", tree, one) for one in entries if not one.folder)


def sum_file_sizes(files: list[UploadFile]) -> int:
    """Return the size of all files, in bytes."""
    return sum(item.entry.size for item in files)
