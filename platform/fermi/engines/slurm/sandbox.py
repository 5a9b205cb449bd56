"""What ranks and environments may reach on Slurm's nodes: orders of `fermi.runner.sandbox`. Pure.

The platform does not know the nodes' kernels, so an order is carried out as far as a node can (`optional`), and what a
node lacks is written to the log of its first rank. Inside a container the whole image is visible, except for the home
and the folders that were mounted into it; it is a file system of its own already.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from fermi.engines.isolation import DEFAULT_READ_FOLDERS, is_readable
from fermi.jobs.code import CodeLocation
from fermi.jobs.rank_env import COMPILE_FOLDER, uses_compile_folder
from fermi.jobs.spec import JobSpec, NodePlan
from fermi.jobs.user_paths import HOMES_FOLDER, find_task_folder

SITE_SOFTWARE = (
    "/apps", "/cm/shared", "/cvmfs", "/easybuild", "/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/hpc",
    "/modules", "/run/slurm/conf/slurm.conf", "/share/apps", "/shared/apps", "/software", "/spack", "/sw",
)  # fmt: skip
"""Folders in which clusters usually have software that all nodes share, and slurm.conf, which `scontrol show hostnames`
reads. What `module load` puts on PATH and LD_LIBRARY_PATH elsewhere is found by the node (`confine.program_folders`).
"""

HIDDEN_IN_CONTAINERS = ("~", "/dev", "/tmp", "/var/tmp")
"""Folders of the machine that apptainer mounts into each container (`mount home`, `mount dev`, `mount tmp` of
apptainer.conf); devices for training are given by name."""


def is_confined(connection: Mapping[str, Any]) -> bool:
    """Return whether nodes are to confine: neither FERMI_ISOLATION nor the connection turned it off."""
    return bool(connection.get("confine", connection.get("isolation") != "off"))


def get_node_cache(job: JobSpec, connection: Mapping[str, Any]) -> str:
    """Return the folder of the nodes that keeps the compiled kernels of the job's project; empty: the connection names
    none."""
    top = str(connection.get("node_cache_dir") or "")
    return f"{top.rstrip('/')}/{job.project or 'default'}" if top else ""


def confine_rank(
    job: JobSpec,
    node: NodePlan,
    at: CodeLocation,
    folder: str,
    workspace: str,
    connection: Mapping[str, Any],
    disk: str = "",
) -> dict[str, Any]:
    """Return the key `confine` of a node's spec, or nothing where it is not wanted. `folder`: the platform's data
    directory as the nodes see it. Of what lies there, a task may write to its own outputs and checkpoints and to the
    workspace, and read its attempt's folder, the datasets, its project's files and what it resumes from or came after.
    `disk`: of the environment inside of which its ranks run: its home is theirs, and `workspace` is its own."""
    run = f"{folder}/runs/{job.name}"
    compiled = f"{run}/files/{COMPILE_FOLDER}" if uses_compile_folder(node) else ""
    tree = at.tree(job) if job.code else ""
    own = [path for path in (job.checkpoint_dir, job.output_dir, compiled, tree) if path]
    node_cache = get_node_cache(job, connection)
    given = {**connection, "writes": [*connection.get("writes", ()), *([node_cache] if node_cache else [])]}
    foreign = [str(find_task_folder(Path(folder), path) or "") for path in job.foreign_paths]
    read = [f"{folder}/datasets", run, *([at.packages] if job.code else []), job.files_dir, *foreign]
    home = f"{disk}/home" if disk else f"{folder}/{HOMES_FOLDER}/{job.project or 'default'}"
    return _build_order(given, folder, own=own, home=home, workspace=workspace,
                  reads=[path for path in read if path],
                  logs=f"{folder}/logs/{job.task_id}/{job.attempt}")  # fmt: skip


def confine_environment(
    spec: Mapping[str, Any], folder: str, connection: Mapping[str, Any], modules: str
) -> dict[str, Any]:
    """Return the keys `confine` and `preparing` of an environment daemon's spec, from the rest of it. `modules`: the
    folder of ours, which the process that prepares packages runs."""
    own = [spec["workspace"], spec["home"], spec["service"]]
    given = {"home": spec["home"], "workspace": spec["workspace"], "logs": spec["service"]}
    reads = [f"{folder}/datasets", spec["tools"]]
    confined = _build_order(connection, folder, own=own, reads=[*reads, spec["cache"]], **given)
    preparing = _build_order(connection, folder, own=[*own, spec["cache"]], reads=[*reads, modules], **given)
    return {**confined, "preparing": preparing["confine"]} if confined else {}


def _build_order(
    connection: Mapping[str, Any], folder: str, *, own: Sequence[str], home: str, workspace: str,
    reads: Sequence[str], logs: str,
) -> dict[str, Any]:  # fmt: skip
    if not is_confined(connection):
        return {}
    container = bool(connection.get("container"))
    read, written = list_given_folders(connection)
    paths = {
        **({**dict.fromkeys(HIDDEN_IN_CONTAINERS, ""), "/": "r"} if container else {}),  # a home may be "/"
        **dict.fromkeys(read, "r"), folder: "", **dict.fromkeys(reads, "r"), logs: "rw",
        **dict.fromkeys([*written, workspace, *own, home], "rwm"),
    }  # fmt: skip
    order = {"own": [*own], "home": home, "paths": paths, "landlock": True, "view": not container, "optional": True}
    return {"confine": order}


def list_given_folders(connection: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the folders that every task may read, and those that it may write to: what the operator names, and what
    was mounted into its container."""
    container = connection.get("container") or {}
    mounted = [str(mount).split(":")[1 if ":" in str(mount) else 0] for mount in container.get("mounts", ())]
    reads = connection.get("task_reads", DEFAULT_READ_FOLDERS)
    read = [*SITE_SOFTWARE, *reads, *connection.get("data_roots", ()), *connection.get("reads", ())]
    return [str(path) for path in read], [*map(str, connection.get("task_writes", ())),
                                          *map(str, connection.get("writes", ())), *mounted]  # fmt: skip


def can_read(connection: Mapping[str, Any], folder: str, workspace: str, path: str) -> bool:
    """Return whether a task may read `path` (normalised) on a node, by its name: links are not followed."""
    if not is_confined(connection) or connection.get("container"):
        return True
    read, written = list_given_folders(connection)
    open_to_all = [f"{folder}/datasets", workspace, *read, *written, "/usr", "/opt", "/nix/store", "/gnu/store"]
    return is_readable(PurePath(path), map(PurePath, open_to_all), [PurePath(folder)])
