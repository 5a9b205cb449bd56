"""What training inside of an environment uses of it, where the platform keeps the environment on this machine: its
interpreter with what was installed there, its home and its workspace.

The interpreter is the environment's own (`fermi.envd.interpreter`), and its members may write to it: only ranks run it,
once they are confined. Where nothing was installed it has what the platform's has. Else ranks continue as it, or are
executed (`fermi.runner.venv`).
"""

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from fermi.engines import interpreter
from fermi.engines.interpreter import ChosenInterpreter
from fermi.engines.isolation import Isolation, SandboxPaths
from fermi.engines.local.environment_runs import EnvironmentDisk
from fermi.engines.local.launcher import build_training_env
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import JobSpec, Node, RunLocation
from fermi.runner import files
from fermi.runner.venv import BASE_NAME

MAX_FOLDERS, MAX_PACKAGES = 20, 20_000


def find_disk(data_dir: Path, node: Node) -> EnvironmentDisk | None:
    """Return the disk of a node's environment; None where the platform keeps no such environment here."""
    try:
        disk = EnvironmentDisk.from_environment(data_dir, node.id)
        return disk if disk.project else None
    except (OSError, ValueError):
        return None


def find_run_locations(data_dir: Path, job: JobSpec) -> Mapping[str, RunLocations]:
    """Return the possibilities for environments that the platform keeps here; any other has the platform's interpreter
    and no files of its own. One that another project shares gives this one its GPUs, and neither its files nor its
    packages."""
    found = {}
    for node in job.nodes:
        if disk := find_disk(data_dir, node):
            foreign = RunLocation(False, "INSIDE_OTHER_PROJECT", {"environment": node.name})
            held = RunLocation(True, "WAY_INSIDE_GPUS", {"gpus": node.gpu_count})
            prefers = held if node.has_cuda else RunLocation(True, "WAY_INSIDE_RUNS")
            found[node.id] = RunLocations(prefers, inside=None if disk.project == job.project else foreign)
    return found


def get_python(disk: EnvironmentDisk, default: str) -> str:
    """Return the interpreter of ranks inside of it; `default`, where that has the same packages."""
    return str(disk.own / "bin" / "python") if _has_packages(disk) else default


def find_chosen_interpreter(
    named: str, isolation: Isolation, paths: SandboxPaths, disk: EnvironmentDisk | None, home: Path
) -> ChosenInterpreter:
    """Return what an interpreter that a task names means to ranks inside of `disk`, or outside; queried with such a
    rank's rights. `home`: of ranks outside."""
    home = disk.home if disk else home
    readable = [paths.home / "datasets", *([build_package_folder(paths.home, disk.project)] if disk else [])]
    confine = isolation.order(
        paths, own=[disk.workspace, disk.home] if disk else [], readable=readable, logs=home, home=home
    )
    own = {"VIRTUAL_ENV": str(disk.own), "FERMI_PYTHON": str(disk.own / "bin" / "python")} if disk else {}
    return interpreter.find_chosen_interpreter(named, {**build_training_env(), "HOME": str(home), **own}, confine)


def build_package_folder(data_dir: Path, project: str) -> Path:
    """Return the folder of a project's prepared packages: what is built from source is built by its members."""
    return data_dir / "packages" / project


def build_variables(disk: EnvironmentDisk, python: str) -> dict[str, str]:
    """Return the variables of ranks inside of it that run with this interpreter."""
    own = {"VIRTUAL_ENV": str(disk.own)} if python.startswith(f"{disk.own}/") else {}
    return {"HOME": str(disk.home), **own}


def list_distributions(disk: EnvironmentDisk) -> set[str]:
    """Return the names of what was installed into its own interpreter, as `interpreter.normalize_name` spells them.
    They are read from names of files: nothing of it runs here."""
    return {
        interpreter.normalize_name(name.partition("-")[0])
        for folder in _list_package_folders(disk)
        for name in _list_names(folder, MAX_PACKAGES)
        if name.endswith(".dist-info")
    }


def _has_packages(disk: EnvironmentDisk) -> bool:
    """Return whether it has what the platform's interpreter lacks: of its template, or because a user has installed
    it."""
    newest = max(disk.runs(), key=lambda run: run.number, default=None)
    if newest and (files.read_json(str(newest.spec)) or {}).get("packages"):
        return True
    return any({*_list_names(folder, 3)} - {BASE_NAME, "__pycache__"} for folder in _list_package_folders(disk))


def _list_package_folders(disk: EnvironmentDisk) -> list[Path]:
    library = disk.own / "lib"
    names = [name for name in _list_names(library, MAX_FOLDERS) if name.startswith("python")]
    return [library / name / "site-packages" for name in names]


def _list_names(folder: Path, max_names: int) -> list[str]:
    """Return names in a folder that members may fill, or replace."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, max_names)]
    except OSError:
        return []
