"""The small GPT of `train_ddp`, fully sharded with FSDP2: every rank keeps its part of each parameter, its gradient and
its optimizer state, and gathers a block's parameters only while it computes with them.

    RANK=0 LOCAL_RANK=0 WORLD_SIZE=4 MASTER_ADDR=gn6 MASTER_PORT=29500 python -m fermi.train.train_fsdp ...
    torchrun --nproc_per_node=4 -m fermi.train.train_fsdp ...
    python -m fermi.train.train_fsdp --world_size 4 ...                                        mp.spawn

Options, data order, output and exit codes are those of `train_ddp`; the sharding options are below. A checkpoint is a
folder that every rank writes its part of, so `--checkpoint_dir` must be one that all nodes share:

    checkpoint_step_100/
        __0_0.distcp __1_0.distcp … .metadata    torch.distributed.checkpoint's: loads at any world size
        manifest.json                            step, options, and size and SHA-256 of each file
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from fermi.train import train_ddp
from fermi.train.train_ddp import CheckpointError, ConfigError, Report, World, list_checkpoints, sync_folder

T = TypeVar("T")


# --- Checkpoints --------------------------------------------------------------------------------------------


class CheckpointSaveError(Exception):
    """Some rank could not write its part; raised on every rank."""


def compute_checksums(folder: Path, pattern: str) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of the matching files, by name."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        with path.open("rb") as file:
            found[path.name] = {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    return found


def commit_checkpoint(partial: Path, path: Path, manifest: dict[str, Any], keep: int) -> int:
    """Turn the folder in which all ranks have written into the checkpoint `path`, and delete those beyond the newest
    `keep`. Return its size in bytes."""
    manifest["files"] |= compute_checksums(partial, ".metadata")
    with (partial / "manifest.json").open("w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(partial)
    if path.exists():  # damaged, or this run went on from an older one
        delete_checkpoint(path)
    partial.rename(path)
    sync_folder(path.parent)
    for old in [old for step, old in list_checkpoints(path.parent, "") if step <= manifest["step"]][keep:]:
        delete_checkpoint(old)
    return sum(written["size"] for written in manifest["files"].values())


def delete_checkpoint(path: Path) -> None:
    """Delete a checkpoint. It is renamed first, so that a half-deleted one never has a checkpoint's name."""
    shutil.rmtree(path.rename(path.with_name(path.name + ".old.partial")))


def delete_partial_checkpoints(folder: Path) -> None:
    """Delete what earlier attempts left incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("checkpoint_step_*.partial"):
        shutil.rmtree(left)


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """Return the manifest after reading every file and comparing it. Raise CheckpointError."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        if not {"step", "options", "scaler", "files"} <= manifest.keys():
            raise CheckpointError("not a checkpoint of this trainer")
        for name, written in manifest["files"].items():
            if compute_checksums(path, name) != {name: written}:
                raise CheckpointError(f"{name} is missing or damaged")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"not a whole checkpoint: {error}") from error
    return manifest


# --- Training -----------------------------------------------------------------------------------------------


class FsdpTrainer(train_ddp.Trainer):
    name = "train_fsdp"

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        add, on_off = parser.add_argument, argparse.BooleanOptionalAction
        add("--shard_size", type=train_ddp.at_least(1), help="neighbouring ranks that share the model; default: all")
        add("--cpu_offload", action=on_off, default=False, help="parameters, gradients and optimizer in CPU memory")
        add(
            "--activation_checkpointing",
            action=on_off,
            default=False,
            help="recompute each block's activations in the backward pass",
        )
        add("--reshard_after_forward", action=on_off, default=True, help="gather parameters again in the backward pass")
        parser.set_defaults(distributed=True)

    @staticmethod
    def resolve_options(args: argparse.Namespace) -> None:
        if not args.distributed:
            raise ConfigError("--no-distributed leaves nothing to shard over: use train_ddp")
        if args.cpu_offload and args.backend != "gloo" and torch.cuda.is_available():
            args.backend = "cpu:gloo,cuda:nccl"  # the gradients that are clipped lie in CPU memory

    def __init__(self, args: argparse.Namespace, world: World, report: Report) -> None:
        super().__init__(args, world, report)
        self.autocast = contextlib.nullcontext()  # parameters themselves are gathered in the lower precision

    def wrap_model(self, model: train_ddp.GPT) -> nn.Module:
        """Return the sharded model, block by block, so that no GPU ever holds the whole model."""
        args, world = self.args, self.world
        size = args.shard_size or world.size
        if world.size % size:
            raise ConfigError(f"--shard_size {size} does not divide the {world.size} processes")
        dims = {"shard": size} if size == world.size else {"replicate": world.size // size, "shard": size}
        low, pinned = self.dtype != torch.float32, world.device.type == "cuda"
        shard = functools.partial(
            fully_shard,
            mesh=init_device_mesh(world.device.type, tuple(dims.values()), mesh_dim_names=tuple(dims)),
            mp_policy=MixedPrecisionPolicy(self.dtype, torch.float32) if low else MixedPrecisionPolicy(),
            offload_policy=CPUOffloadPolicy(pin_memory=pinned) if args.cpu_offload else OffloadPolicy(),
        )
        for block in model.blocks:
            if args.activation_checkpointing:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
            shard(block, reshard_after_forward=args.reshard_after_forward)
        shard(model, reshard_after_forward=False)  # what is outside the blocks is needed in backward at once
        return model

    def parallel(self) -> nn.Module:
        return self.model

    def save(self, last: bool, measured: dict[str, float]) -> None:
        """Save a checkpoint: every rank writes its part under a temporary name; rank 0 renames once all are done, so
        that a checkpoint is complete or absent. A full disk loses a checkpoint and not the run, unless it is the last
        one."""
        path = Path(self.args.checkpoint_dir, f"checkpoint_step_{self.step}")
        partial = path.with_name(path.name + ".partial")
        manifest = {"step": self.step, "options": vars(self.args), "scaler": self.scaler.state_dict()}
        try:
            self.on_first(lambda: delete_partial_checkpoints(path.parent))
            parts = self.together(lambda: compute_checksums(partial, self.write(partial)))
            manifest["files"] = {name: written for part in parts for name, written in part.items()}
            size = self.on_first(lambda: commit_checkpoint(partial, path, manifest, self.args.keep_checkpoints))
        except (CheckpointSaveError, CheckpointException) as error:
            self.report.event("checkpoint_failed", step=self.step, path=str(path), why=describe_failure(error))
            if last:
                raise
        else:
            self.report.event("checkpoint", step=self.step, path=str(path), size_bytes=size, **measured)

    def resume(self) -> None:
        """Load a checkpoint: rank 0 alone verifies the files; then every rank loads its shards."""
        found: list[Any] = [self.chosen() if self.world.rank == 0 else None]
        dist.broadcast_object_list(found, device=self.world.device)
        path, manifest = found[0]
        if path is None:
            return
        if isinstance(manifest, CheckpointError):
            raise ConfigError(f"cannot resume from {path}: {manifest}")
        self.refuse_another_model(path, manifest["options"])
        self.read(path)
        if manifest["scaler"]:  # none, unless it was float16
            self.scaler.load_state_dict(manifest["scaler"])
        self.step = manifest["step"]
        self.report.event("resumed", step=self.step, path=path)

    def chosen(self) -> tuple[str | None, dict[str, Any] | CheckpointError | None]:
        """Return the checkpoint to resume from, and its manifest or why it cannot be used."""
        path = self.args.resume_from
        if path != "auto":
            try:
                return (path, verify_checkpoint(Path(path))) if path else (None, None)
            except CheckpointError as why:
                return path, why
        for _, candidate in list_checkpoints(Path(self.args.checkpoint_dir), ""):
            try:
                return str(candidate), verify_checkpoint(candidate)
            except CheckpointError as why:
                self.report.event("checkpoint_skipped", path=str(candidate), why=str(why))
        return None, None

    def write(self, folder: Path) -> str:
        """Write this rank's part. Return the pattern that its files match."""
        dcp.save(self.state(), checkpoint_id=folder)
        return f"__{self.world.rank}_*.distcp"

    def read(self, folder: str) -> None:
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def state(self) -> dict[str, Any]:
        """Return the state by parameter names and in shards, which a run with other shards can load."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def together(self, work: Callable[[], T]) -> list[T]:
        """Run `work` on every rank and return all results, by rank. Raise CheckpointSaveError on all of them where one
        failed, so that none waits for another."""
        try:
            mine: tuple[T | None, str] = (work(), "")
        except OSError as error:
            mine = (None, str(error) or type(error).__name__)
        everyone: list[Any] = [None] * self.world.size
        dist.all_gather_object(everyone, mine)
        if failed := [f"rank {rank}: {why}" for rank, (_, why) in enumerate(everyone) if why]:
            raise CheckpointSaveError("; ".join(failed))
        return [result for result, _ in everyone]

    def on_first(self, work: Callable[[], T]) -> T | None:
        """Run `work` on rank 0 while the others wait, as `together`."""
        return self.together(lambda: work() if self.world.rank == 0 else None)[0]


def describe_failure(error: BaseException) -> str:
    """Return the error in one line, without the tracebacks of other ranks."""
    if isinstance(error, CheckpointException):
        return "; ".join(f"rank {rank}: {failed[0]}" for rank, failed in error.failures.items()).replace("\n", " ")
    return str(error)


def main(argv: list[str]) -> int:
    return train_ddp.main(argv, FsdpTrainer)


if __name__ == "__main__":
    train_ddp.run_and_exit(main, sys.argv[1:])
