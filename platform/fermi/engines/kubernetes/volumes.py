"""Mounts of a training pod: of the data volume what the task needs and no more, and its environment's volumes.

data volume          in the pod
  datasets/…         the task's own, and what its script or arguments name; read-only
  workspace/…        the folder of its script; read-only
code/archives/<id> of its own code; read-only
  checkpoints/<task> read and written; of the task that it resumes from, read-only
  outputs/<task>     read and written
  trees/<task>       of a task that brings code; read and written
  files/<project>    of its own project; read-only
  homes/<project>/.cache  of its own project; read and written
  the rest           never: the platform's keys and database, logs, other projects' files
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from posixpath import normpath
from typing import Any

from fermi.engines.safe_tree import FOLDER_FLAGS, open_folder_below
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import JobSpec, Node
from fermi.jobs.user_paths import (
    CACHE_FOLDER,
    CHECKPOINTS_FOLDER,
    FILES_FOLDER,
    HOMES_FOLDER,
    OUTPUTS_FOLDER,
    TREES_FOLDER,
    find_task_folder,
)

log = logging.getLogger(__name__)

JOB_DIR, RUN_DIR = "/fermi/job", "/fermi/run"
"""Mount paths: the ConfigMap, read-only; and an empty folder of the pod's own, into which the runner copies the plan's
files."""
JOB_VOLUME, RUN_VOLUME, SHM_VOLUME, DATA_VOLUME = "fermi-job", "fermi-run", "shm", "fermi-data"
SHARED_FOLDERS = ("datasets", "workspace")
"""Folders of the data directory that every member may use (see `apps.catalog.sources`)."""
DEFAULT_USER = 1000

Volumes = list[dict[str, Any]]


def get_data_root(connection: Mapping[str, Any]) -> str:
    """Return the path at which pods would see the whole data volume."""
    data = connection.get("data") or {}
    return str(data.get("mountPath") or connection.get("data_dir") or "")


def get_user(connection: Mapping[str, Any]) -> int:
    """Return the user that pods run as: the operator's choice; else the platform's, because it makes their folders;
    1000 where that is root."""
    return int(connection.get("run_as_user") or connection.get("platform_user") or DEFAULT_USER)


def find_hidden_paths(job: JobSpec, connection: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (field, path) of what a task names in the data volume that no pod can see."""
    if not connection.get("data") or not job.entrypoint or job.brings(job.entrypoint.script):
        return []
    script = job.entrypoint.script
    parts = _split_below(script, get_data_root(connection))
    return [("entrypoint.script", script)] if parts is not None and not _is_shared(parts) else []


def build_data_mounts(job: JobSpec, connection: Mapping[str, Any]) -> Volumes:
    """Return the mounts of the data volume. A folder inside another one that is mounted needs no mount of its own."""
    if not connection.get("data"):
        return []
    top = get_data_root(connection)
    wanted = dict.fromkeys(_iterate_needed(job, top), True)
    own = _split_below(job.checkpoint_dir, top)
    if own and len(own) > 1 and own[0] == CHECKPOINTS_FOLDER:
        wanted[own] = False
    written = _split_below(job.output_dir, top)
    if written and len(written) == 2 and written[0] == OUTPUTS_FOLDER:
        wanted[written] = False
    if job.code:
        wanted[TREES_FOLDER, job.task_id] = False
    if job.project:
        wanted[HOMES_FOLDER, job.project, CACHE_FOLDER] = False
    mounts: Volumes = []
    for parts, read_only in sorted(wanted.items()):
        if any(parts[:length] in wanted for length in range(1, len(parts))):
            continue
        path = "/".join(parts)
        mount = {"name": DATA_VOLUME, "mountPath": f"{top.rstrip('/')}/{path}", "subPath": path}
        mounts.append(mount | ({"readOnly": True} if read_only else {}))
    return mounts


def find_cache_folder(job: JobSpec, connection: Mapping[str, Any]) -> str:
    """Return the folder of the job's project in which libraries keep what they download and compile; empty without a
    data volume, or a project."""
    if not connection.get("data") or not job.project:
        return ""
    return f"{get_data_root(connection).rstrip('/')}/{HOMES_FOLDER}/{job.project}/{CACHE_FOLDER}"


def _iterate_needed(job: JobSpec, top: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths that are read. A dataset that the platform made is a folder of its own; a file that lies directly
    in an open folder is mounted alone, except that a script may import what lies beside it."""
    entry = job.entrypoint
    named = [job.train_data, job.valid_data, *(entry.args if entry else ()), *map(str, job.env.values())]
    for path in named:
        parts = _split_below(path.rpartition("=")[2], top)
        if parts and _is_shared(parts):
            yield parts[:2]
    if entry and (parts := _split_below(entry.script, top)) and _is_shared(parts):
        yield parts[:2] if len(parts) > 2 else parts[:1]
    if job.code and (parts := _split_below(job.code.folder, top)):
        yield parts
    if (parts := _split_below(job.files_dir, top)) and len(parts) == 2 and parts[0] == FILES_FOLDER:
        yield parts
    if (parts := _split_below(job.resume_from, top)) and _is_shared(parts):
        yield parts
    for path in job.foreign_paths if top else ():
        if folder := find_task_folder(Path(top), path):
            yield folder.parts[-2:]


def _split_below(path: str, top: str) -> tuple[str, ...] | None:
    """Return the parts of `path` below `top`; None if it is not inside."""
    clean, start = normpath(path) if path else "", normpath(top) if top else ""
    if not start or not clean.startswith(f"{start.rstrip('/')}/"):
        return None
    return tuple(clean[len(start.rstrip("/")) + 1 :].split("/"))


def _is_shared(parts: tuple[str, ...]) -> bool:
    return len(parts) > 1 and parts[0] in SHARED_FOLDERS


def add_environment_volumes(node: Node, volumes: Volumes, mounts: Volumes, connection: Mapping[str, Any]) -> list[str]:
    """Add the environment's own volumes to ours, in place. Ours stay as they are: a volume of theirs with a name that
    we use gets another, and a mount is left out where we mount something, and where it is the whole data volume again.
    Return those that were left out, as text."""
    data = connection.get("data") or {}
    theirs = {volume["name"]: volume for volume in node.engine.get("volumes") or ()}
    taken = {normpath(mount["mountPath"]) for mount in mounts}
    taken |= {normpath(get_data_root(connection))} if data else set()
    names = {volume["name"] for volume in volumes}
    renamed: dict[str, str] = {}
    left_out = []
    for mount in node.engine.get("volumeMounts") or ():
        source, path = theirs.get(mount["name"]), normpath(mount["mountPath"])
        whole = source is not None and not (mount.get("subPath") or mount.get("subPathExpr"))
        if source is None or path in taken or (whole and _is_same_source(source, data.get("volume") or {})):
            left_out.append(f"{mount['mountPath']} ({mount['name']})")
            continue
        taken.add(path)
        if mount["name"] not in renamed:
            name = renamed[mount["name"]] = _choose_name(mount["name"], names | theirs.keys() - {mount["name"]})
            names.add(name)
            volumes.append({**source, "name": name})
        mounts.append({**mount, "name": renamed[mount["name"]]})
    return left_out


def find_data_mount(node: Node, connection: Mapping[str, Any]) -> str:
    """Return where an environment's own container has the whole data volume to write to; empty: nowhere."""
    data = (connection.get("data") or {}).get("volume") or {}
    theirs = {volume["name"]: volume for volume in node.engine.get("volumes") or ()}
    for mount in node.engine.get("volumeMounts") or ():
        whole = not (mount.get("subPath") or mount.get("subPathExpr") or mount.get("readOnly"))
        if whole and _is_same_source(theirs.get(mount["name"]) or {}, data):
            return normpath(mount["mountPath"])
    return ""


def _choose_name(name: str, taken: Iterable[str]) -> str:
    """Return a volume name that is not taken: a DNS label of at most 63 characters."""
    taken = set(taken)
    tries = (name, *(f"dev{number or ''}-{name}"[:63].rstrip("-") for number in range(len(taken) + 1)))
    return next(one for one in tries if one not in taken)


def _is_same_source(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two volumes are the same storage, whatever their names and however they are mounted."""

    def plain(volume: Mapping[str, Any]) -> dict[str, Any]:
        sources = {kind: value for kind, value in volume.items() if kind != "name"}
        return {
            kind: {k: v for k, v in value.items() if k != "readOnly"} if isinstance(value, Mapping) else value
            for kind, value in sources.items()
        }

    return bool(other) and plain(one) == plain(other)


def prepare_folders(data_dir: Path, pod: Mapping[str, Any]) -> None:
    """Make the folders that a pod writes to, and give them to its user. The kubelet would make them too, as root's.
    They are writable for all users only where we are not allowed more, and what is above them is not. A cache of
    libraries that belongs to another user stays that user's: tasks on this machine may write to it, and pods that
    cannot go without. Raise BackendError, also where a link is on the way: tasks on this machine own the homes."""
    ids = pod.get("securityContext") or {}
    uid, gid = ids.get("runAsUser"), ids.get("fsGroup") or ids.get("runAsGroup") or -1
    for mount in (mount for one in pod["containers"] for mount in one.get("volumeMounts") or ()):
        path = str(mount.get("subPath") or "")
        if mount["name"] != DATA_VOLUME or not path:
            continue
        if path.startswith(f"{FILES_FOLDER}/"):
            (data_dir / path).mkdir(parents=True, exist_ok=True)  # if the kubelet made it, as root, we could not write
        if mount.get("readOnly"):
            continue
        try:
            folder = _make_folder_below(data_dir, path)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=str(data_dir / path), why=error.strerror) from error
        try:
            owner = os.fstat(folder).st_uid
            is_others_cache = path.startswith(f"{HOMES_FOLDER}/") and owner != os.geteuid()
            if uid is not None and owner != uid and not is_others_cache:
                _give_folder(folder, uid, gid)
        finally:
            os.close(folder)


def _make_folder_below(top: Path, path: str) -> int:
    """Return a descriptor of a folder below `top`, made if need be. Raise OSError where a link is on the way."""
    top.mkdir(parents=True, exist_ok=True)
    at = os.open(top, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        with open_folder_below(at, path, make_mode=0o777) as folder:
            return os.dup(folder)
    finally:
        os.close(at)


def _give_folder(folder: int, uid: int, gid: int) -> None:
    try:
        os.fchown(folder, uid, gid)
        os.fchmod(folder, 0o770)
    except PermissionError:
        os.fchmod(folder, 0o777)
