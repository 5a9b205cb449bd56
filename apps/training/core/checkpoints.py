"""Whose checkpoints a path names, and so who may go on from there.

An attempt may read the whole folder of the task that it resumes from (`fermi.jobs.user_paths.task_folder`). So what
a user asks for has to be in a folder of a task that they see, and what a script claims to have saved, in its own.
"""

import os
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from apps.accounts import access
from apps.accounts.models import User
from apps.catalog import sources
from apps.clusters import paths
from apps.clusters.models import Cluster
from apps.training.models import Task
from fermi.jobs.user_paths import CHECKPOINTS, TREE, TREES

AUTO = "auto"
"""The newest of a task's own, which its trainer finds."""
ANYBODY, PLATFORM = "*", ""


def named(cluster: Cluster, path: str) -> str:
    """What a user means by `path`, as the platform has it: they may name the cluster's own mount of the data directory,
    or spell it in some other way."""
    path = paths.plain(path)
    return path if path.startswith(f"{settings.DATA_DIR}/") else paths.here(cluster, path)


def may_read(user: User, path: str) -> bool:
    """Whether `user` may have a task go on from `path`, which is `named`: as written, and as links lead now."""
    if path in ("", AUTO):
        return True
    try:
        found = {Path(path), Path(os.path.realpath(path))}
    except (OSError, ValueError):  # nothing can be there; the engine says why
        return True
    owners = set(map(_make_owner_lookup(), found)) - {ANYBODY}
    return access.visible(Task.objects.all(), user).filter(pk__in=owners).count() == len(owners)


def announced(cluster: Cluster, task_id: str, path: str) -> str:
    """What a task's script means by `path`, as the platform has it: its ranks start in their working tree. Inside of a
    dev environment the data directory lies elsewhere; the task's own folders there bear its id."""
    tree = settings.DATA_DIR / TREES / task_id / TREE
    if path and not os.path.isabs(path) and tree.is_dir():
        return os.path.normpath(tree / path)
    plain, found = paths.plain(path), paths.here(cluster, path)
    for folder in (CHECKPOINTS, TREES) if found == plain else ():
        _, own, rest = plain.partition(f"/{folder}/{task_id}/")
        if own:
            return str(settings.DATA_DIR / folder / task_id / rest)
    return found


def make_claim_check(task_id: str) -> Callable[[str], bool]:
    """Return what tells of a path whether that task's script may claim it as its own. Links in its folder open nothing
    else."""
    owner = _make_owner_lookup()
    return lambda path: owner(Path(paths.plain(path))) in (task_id, ANYBODY)


def _make_owner_lookup() -> Callable[[Path], str]:
    """Return what tells of a path the task in whose folder it is, or ANYBODY for what every script may read: the open
    folders, and what is not in the data directory. The rest is the platform's own. Links of the folders are followed
    here, and so once for all paths."""
    of_tasks = [top for folder in (CHECKPOINTS, TREES) for top in _names(settings.DATA_DIR / folder)]
    everything, open_to_all = _names(settings.DATA_DIR), sources.open_folders()

    def owner(path: Path) -> str:
        for top in of_tasks:
            if top in path.parents:
                return path.relative_to(top).parts[0]
        inside = any(path.is_relative_to(top) for top in everything)
        return PLATFORM if inside and not any(path.is_relative_to(top) for top in open_to_all) else ANYBODY

    return owner


def _names(folder: Path) -> tuple[Path, Path]:
    return folder, folder.resolve()
