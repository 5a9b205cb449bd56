"""Hooks for the runs of Weights & Biases: where the run is, and the same run after a restart (wandb 0.31; versions from
0.19 on have the methods that are hooked).

The first run that rank 0 of a task begins is the task's own: its id is the task's, and the next attempt resumes it
("allow"). That is done in `wandb.init`, and not by WANDB_RUN_ID and WANDB_RESUME, which every process would get: ranks,
and further runs of the same process, would all write into one run. W&B has no order for that: the last one that sends a
step wins (https://docs.wandb.ai/models/track/log/distributed-training).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .records import add_record
from .tracker_calls import replace_function

if TYPE_CHECKING:
    from .rank import ProgressWriter

SOURCE = "wandb"
CLAIM_FOLDER = "wandb"
"""In the task's outputs, where wandb keeps its own files, too."""
MAX_RUNS = 20
"""Of one process that are reported."""
FIRST_SYNC_OF_PARTS = (0, 30)
"""Version of wandb from which on `wandb sync` sends several offline folders of one run one after the other. Older ones
replace what the folder before has sent (wandb/wandb issues 3841 and 5865)."""

_reported: set[tuple[str, str]] = set()
_claim = {"process": 0, "begun": 0}
"""Process that has the claim, and the one whose run has begun with it: one that could not begin may try again."""


def runs(pulse: ProgressWriter, module: ModuleType) -> None:
    """Have the first run of rank 0 be the task's, and report each run once it has begun."""
    begin, choose = module._WandbInit.init, module._WandbInit.set_run_id

    def init(own: Any, settings: Any, *args: Any, **kwargs: Any) -> Any:
        run = begin(own, settings, *args, **kwargs)
        if _claim["process"] == os.getpid() and run.id == os.environ.get("FERMI_TASK_ID"):
            _claim["begun"] = _claim["process"]
            _run_quietly(_allow_changes, run)
        _run_quietly(_report_run, run)
        return run

    def set_run_id(own: Any, settings: Any, *args: Any, **kwargs: Any) -> Any:
        _run_quietly(_set_task_run, pulse, settings)
        return choose(own, settings, *args, **kwargs)

    replace_function(module._WandbInit, "init", init)
    replace_function(module._WandbInit, "set_run_id", set_run_id)


def _run_quietly(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except Exception:  # another version than those that are known
        pass


def _set_task_run(pulse: ProgressWriter, settings: Any) -> None:
    """Set the id of the task's own run, unless the script, its variables, a sweep or a launch of W&B say which run it
    is, or another run of rank 0 has begun before."""
    task = os.environ.get("FERMI_TASK_ID", "")
    if not task or _find_rank(pulse) != "0" or settings.run_id is not None or settings.resume not in (None, "allow"):
        return
    others = ("fork_from", "resume_from", "sweep_id", "launch", "_noop", "_shared")
    if any(getattr(settings, name, None) for name in others):
        return
    if getattr(settings, "_offline", False) and not _syncs_parts():
        return
    if _claim_run():
        settings.run_id, settings.resume = task, "allow"


def _find_rank(pulse: ProgressWriter) -> str:
    if pulse.ranks is not None and pulse.local_rank is not None:
        return str(pulse.ranks.first + pulse.local_rank)
    return os.environ.get("RANK", "0")


def _syncs_parts() -> bool:
    import wandb

    major, minor = (int(part) for part in str(wandb.__version__).split(".")[:2])
    return (major, minor) >= FIRST_SYNC_OF_PARTS


def _claim_run() -> bool:
    """Return True to one process alone: of an attempt, and of each start of the ranks within it. What it begins with is
    a file that one process creates, as children of the rank may begin runs, too."""
    if _claim["process"] == os.getpid() != _claim["begun"]:
        return True
    outputs = os.environ.get("FERMI_OUTPUT_DIR", "")
    if not outputs:
        return False
    folder = os.path.join(outputs, CLAIM_FOLDER)
    start = "-".join(os.environ.get(name, "0") for name in ("FERMI_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"))
    try:
        os.makedirs(folder, exist_ok=True)
        os.close(os.open(os.path.join(folder, f".begun-{start}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except OSError:
        return False
    _claim["process"] = os.getpid()
    return True


def _allow_changes(run: Any) -> None:
    """Have a resumed run accept another value of a parameter: it has those of the attempt before, so a script that says
    where it resumes from, or how many ranks there are, would fail (`_sanitize` in sdk/wandb_config.py)."""
    config = run._config
    check = config._sanitize

    def sanitize(key: Any, value: Any, allow_val_change: bool | None = None) -> Any:
        return check(key, value, True if allow_val_change is None else allow_val_change)

    if run.resumed:
        object.__setattr__(config, "_sanitize", sanitize)


def _report_run(run: Any) -> None:
    """Report where a run is: its page, or its folder in the outputs while it is offline."""
    settings = run._settings
    folder = _find_folder(settings)
    key = str(run.id), folder
    if key in _reported or len(_reported) >= MAX_RUNS:
        return
    _reported.add(key)
    found = {
        "id": run.id, "entity": run.entity, "project": getattr(run, "project", None) or settings.project,
        "name": run.name, "url": None if settings._offline else run.url, "folder": folder,
    }  # fmt: skip
    told = {name: str(value) for name, value in found.items() if value}
    add_record({"source": SOURCE, "run": {**told, **({"offline": True} if settings._offline else {})}})


def _find_folder(settings: Any) -> str:
    """Return the folder of a run, relative to the task's outputs; empty where it is not there."""
    outputs = os.environ.get("FERMI_OUTPUT_DIR", "")
    if not outputs or not settings.sync_dir:
        return ""
    path = os.path.relpath(os.path.realpath(settings.sync_dir), os.path.realpath(outputs))
    return "" if path.startswith("..") else path
