"""Finds out which task a checkpoint path belongs to, and so who may resume from it.

An attempt may read the whole folder of the task that it resumes from (`fermi.jobs.user_paths.find_task_folder`). So a
path that a user requests has to be in the folder of a task that they can see, and a path that a script claims to have
saved has to be in its own.
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
from fermi.jobs.user_paths import TASK_FOLDERS, TREE_FOLDER, TREES_FOLDER

AUTO = "auto"
"""Stands for the newest checkpoint of the task, which its trainer finds itself."""
ANY_OWNER, PLATFORM_OWNER = "*", ""


def resolve_path(cluster: Cluster, path: str) -> str:
    """Return the platform's path for the `path` that a user gave: they may use the cluster's own mount of the data
    directory, or another spelling."""
    path = paths.normalize_path(path)
    return path if path.startswith(f"{settings.DATA_DIR}/") else paths.to_platform_path(cluster, path)


def may_read_checkpoint(user: User, path: str) -> bool:
    """Return True if `user` may resume a task from `path` (as `resolve_path` returns it): both the path as written and
    the path after following links have to be readable."""
    if path in ("", AUTO):
        return True
    try:
        found = {Path(path), Path(os.path.realpath(path))}
    except (OSError, ValueError):  # such a path cannot exist; the engine reports why
        return True
    owners = set(map(_make_owner_lookup(), found)) - {ANY_OWNER}
    return access.filter_visible(Task.objects.all(), user).filter(pk__in=owners).count() == len(owners)


def resolve_announced_path(cluster: Cluster, task_id: str, path: str) -> str:
    """Return the platform's path for a `path` that a task's script printed. Relative paths start at the task's working
    tree, in which its ranks run. Inside a dev environment the data directory is elsewhere; the task's own folders there
    contain its id."""
    tree = settings.DATA_DIR / TREES_FOLDER / task_id / TREE_FOLDER
    if path and not os.path.isabs(path) and tree.is_dir():
        return os.path.normpath(tree / path)
    plain, found = paths.normalize_path(path), paths.to_platform_path(cluster, path)
    for folder in TASK_FOLDERS if found == plain else ():
        _, own, rest = plain.partition(f"/{folder}/{task_id}/")
        if own:
            return str(settings.DATA_DIR / folder / task_id / rest)
    return found


def make_claim_check(task_id: str) -> Callable[[str], bool]:
    """Return a function that tells whether the task's script may claim a path as its own. Links in the task's folder
    are not followed."""
    owner = _make_owner_lookup()
    return lambda path: owner(Path(paths.normalize_path(path))) in (task_id, ANY_OWNER)


def _make_owner_lookup() -> Callable[[Path], str]:
    """Return a function from a path to the id of the task that owns its folder, or ANY_OWNER for what every script may
    read (the open folders, and everything outside of the data directory), or PLATFORM_OWNER for the rest. Links of the
    top folders are resolved once, here."""
    of_tasks = [top for folder in TASK_FOLDERS for top in _list_names(settings.DATA_DIR / folder)]
    everything, open_to_all = _list_names(settings.DATA_DIR), sources.list_open_folders()

    def owner(path: Path) -> str:
        for top in of_tasks:
            if top in path.parents:
                return path.relative_to(top).parts[0]
        inside = any(path.is_relative_to(top) for top in everything)
        return PLATFORM_OWNER if inside and not any(path.is_relative_to(top) for top in open_to_all) else ANY_OWNER

    return owner


def _list_names(folder: Path) -> tuple[Path, Path]:
    """Return the folder as written and with links resolved."""
    return folder, folder.resolve()
