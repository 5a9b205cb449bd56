"""Sends runs of W&B that were offline from this machine: their folders in a task's outputs are downloaded, and `wandb
sync` of this machine sends them with the key that it knows."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from fermi.client.errors import FermiError, NotFoundError
from fermi.client.files import Outputs

FOLDER, PREFIX = "wandb", "offline-run-"
MAX_RUNS = 100


class SentRun(TypedDict):
    """A folder of a run, and whether W&B has it now."""

    folder: str
    synced: bool


def send_runs(outputs: Outputs, task_id: str) -> list[SentRun]:
    """Send the runs of a task that were offline, and return which were. Raise FermiError where wandb is not
    installed."""
    command = _find_command()
    with TemporaryDirectory() as work:
        copies = [_download(outputs, task_id, path, Path(work)) for path in _list_folders(outputs, task_id)]
        waiting = [copy for copy in copies if not _is_synced(copy)]
        if waiting:
            environment = {**os.environ, "WANDB_DIR": work}
            subprocess.run([*command, "sync", *map(str, waiting)], check=False, env=environment, stdout=sys.stderr)
        return [SentRun(folder=f"{FOLDER}/{copy.name}", synced=_is_synced(copy)) for copy in copies]


def _find_command() -> Sequence[str]:
    """Return how wandb is started here."""
    if find_spec("wandb"):
        return sys.executable, "-m", "wandb"
    if found := shutil.which("wandb"):
        return (found,)
    raise FermiError("wandb is not installed here: pip install wandb", code="WANDB_MISSING")


def _list_folders(outputs: Outputs, task_id: str) -> list[str]:
    try:
        items = list(outputs.list(task_id, FOLDER))
    except NotFoundError as error:
        if error.code == "FILE_NOT_FOUND":
            return []
        raise
    found = [one["path"] for one in items if one["kind"] == "folder" and one["name"].startswith(PREFIX)]
    return found[:MAX_RUNS]


def _download(outputs: Outputs, task_id: str, path: str, into: Path) -> Path:
    copy = into / path.rpartition("/")[2]
    for item in outputs.tree(task_id, path):
        outputs.get(task_id, item, copy.joinpath(*item["path"].removeprefix(f"{path}/").split("/")))
    copy.mkdir(exist_ok=True)
    return copy


def _is_synced(copy: Path) -> bool:
    return any(copy.glob("*.wandb.synced"))
