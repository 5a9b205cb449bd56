"""Loading of a DeepSpeed ZeRO checkpoint by another number of processes than saved it.

Each of ZeRO's files is one rank's. DeepSpeed's own `ds_to_universal` merges them, by parameter. Rank 0 runs it into a
folder among this run's checkpoints, which is deleted once all ranks have loaded it.

    checkpoint_step_100/                             zero_pp_rank_0 … 3, as four processes saved it
    checkpoint_step_100.universal.partial/whole/     zero/<parameter>/fp32.pt, exp_avg.pt, …: what three load
"""

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

UNIVERSAL_FOLDER = "whole"


@contextlib.contextmanager
def convert_checkpoint(path: Path, own: Path, rank: int) -> Iterator[Path]:
    """Yield the folder that every rank loads from; a failure of rank 0 raises RuntimeError on all. It is created in
    `own`, this run's folder of checkpoints, because `path` may be another task's."""
    folder = own.absolute() / f"{path.name}.universal.partial"
    why: list[str] = [""]
    if rank == 0:
        try:
            shutil.rmtree(folder, ignore_errors=True)
            _run_conversion(path.absolute(), folder)
        except Exception as error:
            why = [str(error).split("\n")[0] or type(error).__name__]
    dist.broadcast_object_list(why)
    if why[0]:
        raise RuntimeError(f"{path} cannot be put together: {why[0]}")
    yield folder / UNIVERSAL_FOLDER
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)


def _run_conversion(path: Path, folder: Path) -> None:
    """Convert in this process, with nothing on standard output, which is for metrics. DeepSpeed uses the output path as
    a regular expression, so it gets a plain name."""
    from deepspeed.checkpoint import ds_to_universal

    (folder / UNIVERSAL_FOLDER).mkdir(parents=True)
    asked = SimpleNamespace(
        input_folder=str(path), output_folder=UNIVERSAL_FOLDER, num_extract_workers=1, num_merge_workers=1,
        keep_temp_folder=False, strict=True, inject_missing_state=True,
    )  # fmt: skip
    quiet = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        ds_to_universal.main(asked)


def load_universal_checkpoint(engine: Any, folder: Path) -> None:
    """Load weights, optimizer and counters. ZeRO 3 gives all parameter groups the first one's weight decay, and one
    shared step counter tensor, so that each group would count for all of them: both are corrected."""
    kept = [{name: value for name, value in group.items() if name != "params"} for group in _list_groups(engine)]
    engine._config.load_universal_checkpoint = True
    try:
        engine.load_checkpoint(str(folder.parent), tag=folder.name)
    finally:
        engine._config.load_universal_checkpoint = False
    for group, values in zip(_list_groups(engine), kept, strict=True):
        group["weight_decay"] = values["weight_decay"]
    for state in engine.optimizer.optimizer.state.values():
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = state["step"].clone()


def _list_groups(engine: Any) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = engine.optimizer.param_groups
    return groups
