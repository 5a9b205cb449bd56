"""The small GPT of train_ddp.py, trained with DeepSpeed: what differs from there, and no more.

    RANK=0 LOCAL_RANK=0 WORLD_SIZE=4 MASTER_ADDR=gn6 MASTER_PORT=29500 python train_deepspeed.py ...    once per rank
    torchrun --nproc_per_node=4 train_deepspeed.py --deepspeed_config ds_config.json --train_data_path train.bin ...
    deepspeed --hostfile hostfile train_deepspeed.py --deepspeed_config ds_config.json ...

`ds_config.json` decides batch sizes, precision, optimizer, clipping and offloading, whatever other options say. With a
`scheduler` in it DeepSpeed sets the learning rate, without one it is warmed up and decays as in train_ddp.py.

`--tensor_parallel_size` ranks share each layer, `--pipeline_parallel_size` stages share the layers between them; see
deepspeed_parallel.py. What is left over is data parallelism.

A checkpoint is a folder that all ranks write, each its share: it needs a folder that every node sees.
"""

import argparse
import json
import logging
import os
import re
import shutil
import socket
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from fermi.train import train_ddp
from fermi.train.train_ddp import (
    GPT,
    MODEL_OPTIONS,
    CheckpointError,
    ConfigError,
    Report,
    Samples,
    World,
    hash_to_int,
    map_tokens,
)

if os.environ.get("DS_ACCELERATOR", "cuda" if torch.cuda.device_count() else "cpu") == "cpu":
    from fermi.train import deepspeed_on_cpu  # noqa: F401
import deepspeed
from deepspeed.runtime.config import DeepSpeedConfig

from fermi.train import deepspeed_parallel, deepspeed_universal
from fermi.train.deepspeed_parallel import ParallelSplit

MANIFEST_NAME = "checkpoint.json"


def parse_args(argv: list[str]) -> argparse.Namespace:
    """Return the options of train_ddp.py, the path of `ds_config.json`, and how the model is split. Raise
    ConfigError."""
    ours, env = argparse.ArgumentParser(add_help=False, allow_abbrev=False), os.environ.get
    ours.add_argument("--deepspeed_config", default=env("FERMI_DEEPSPEED_CONFIG"))
    for kind in ("tensor", "pipeline"):
        default = env(f"FERMI_{kind.upper()}_PARALLEL") or 1
        ours.add_argument(f"--{kind}_parallel_size", type=train_ddp.at_least(1), default=default)
    config, rest = ours.parse_known_args(argv)
    args = train_ddp.parse_args(rest)
    vars(args).update(vars(config))
    args.distributed = True  # DeepSpeed wants a process group for a single process, too
    if not args.deepspeed_config:
        raise ConfigError("--deepspeed_config is missing")
    return args


class DeepSpeedTrainer(train_ddp.Trainer):
    """Trainer whose `model` is DeepSpeed's engine around the GPT."""

    model: Any

    def __init__(self, args: argparse.Namespace, world: World, report: Report) -> None:
        self.args, self.world, self.report = args, world, report
        deepspeed.init_distributed(dist.get_backend())
        self.split = ParallelSplit.from_args(args, world)
        self.config = read_config(args, self.split)
        same_data = world._replace(rank=self.split.data_rank, size=self.split.data)
        self.train_data = Samples(args.train_data_path, args, same_data)
        self.valid_data = Samples(args.valid_data_path, args, same_data) if args.valid_data_path else None
        torch.manual_seed(args.seed)
        model = GPT(args)
        count = sum(weight.numel() for weight in model.parameters())
        self.model, self.optimizer, _, self.scheduler = self.engine(model)
        self.autocast = torch.autocast(world.device.type, enabled=False)  # the engine sees to precision
        self.step = 0
        stage = self.model.zero_optimization_stage()
        dtype = str(self.model.get_data_types()[0]).removeprefix("torch.")
        about = {"device": str(world.device), "dtype": dtype, "parameters": count, "zero_stage": stage}
        if degrees := self.split.degrees:
            about |= degrees | {"data": self.split.data}
        self.started(**about)

    def engine(self, model: GPT) -> Any:
        groups = train_ddp.make_parameter_groups(model, self.args.weight_decay)
        made = deepspeed.initialize(model=model, model_parameters=groups, config=self.settings())
        deepspeed_parallel.divide_heads(made[0], self.split)
        return made

    def settings(self) -> dict[str, Any]:
        """Return the content of `ds_config.json`, with the specification of how layers are split."""
        return deepspeed_parallel.add_autotp_config(
            json.loads(Path(self.args.deepspeed_config).read_bytes()), self.split
        )

    def parallel(self) -> nn.Module:
        return self.model

    def advance(self, parallel: nn.Module) -> torch.Tensor:
        self.begin_step(self.split.data_rank)
        micro_steps, loss = self.args.gradient_accumulation_steps, torch.zeros((), device=self.world.device)
        for micro_step in range(micro_steps):
            part = parallel(*self.train_data.draw(self.step, micro_step))
            self.model.backward(part)  # divides by the number of micro steps
            self.model.step()  # does something in the last of them
            loss += part.detach() / micro_steps
        return loss

    def begin_step(self, *place: int) -> None:
        """Seed the dropout and set the learning rate. Ranks with the same `place` drop the same activations."""
        self.step += 1
        torch.manual_seed(hash_to_int("rank", self.args.seed, self.step, *place))
        if self.scheduler is None:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate()

    def save(self, last: bool, measured: dict[str, float]) -> None:
        """Save a checkpoint: all ranks write into a folder with a temporary name; rank 0 renames it once it is complete
        and synced to disk. A rank that cannot write ends the run: the others already wait for it inside DeepSpeed."""
        folder = Path(self.args.checkpoint_dir)
        path, partial = folder / f"checkpoint_step_{self.step}", folder / f"checkpoint_step_{self.step}.partial"
        if self.world.rank == 0:
            for left in folder.glob("checkpoint_step_*.partial"):
                shutil.rmtree(left)
        dist.barrier()
        self.model.save_checkpoint(str(folder), tag=partial.name, save_latest=False)
        if self.world.rank == 0:
            size = self.seal(partial)
            if path.exists():  # of an attempt that ran as far, and was not resumed from
                shutil.rmtree(path)
            partial.rename(path)
            sync_path(folder)
            for _, old in [(step, old) for step, old in list_checkpoints(folder) if step <= self.step][
                self.args.keep_checkpoints :
            ]:
                shutil.rmtree(old.rename(old.with_name(f"{old.name}.partial")))
            self.report.event("checkpoint", step=self.step, path=str(path), size_bytes=size, **measured)

    def seal(self, folder: Path) -> int:
        """Write the manifest of a complete checkpoint; return its size in bytes."""
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
        options = {name: getattr(self.args, name) for name in MODEL_OPTIONS}
        manifest = {"step": self.step, "options": options, "saved_by": self.saved_by(), "files": sizes}
        (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
        for path in (*folder.iterdir(), folder):
            sync_path(path)
        return sum(sizes.values())

    def saved_by(self) -> dict[str, Any]:
        """Return what a run must have in common with this one to load its checkpoints; the number of processes may
        differ where the model is not split."""
        dtype = str(self.model.get_data_types()[0]).removeprefix("torch.")
        stage = self.model.zero_optimization_stage()
        return {"processes": self.world.size, "zero_stage": stage, "dtype": dtype, **self.split.degrees}

    def resume(self) -> None:
        """Load a checkpoint. Every rank checks its own files, and all agree: another rank may see other files."""
        wanted = self.args.resume_from
        if not wanted:
            return
        folder = Path(self.args.checkpoint_dir)
        found = [[str(path) for _, path in list_checkpoints(folder)] if wanted == "auto" else [wanted]]
        dist.broadcast_object_list(found, device=self.world.device)
        for path in map(Path, found[0]):
            why = self.agreed(self.unusable(path))
            if why is None:
                self.load(path)
                return
            if wanted != "auto":
                raise ConfigError(f"cannot resume from {path}: {why}")
            self.report.event("checkpoint_skipped", path=str(path), why=why)

    def agreed(self, why: str | None) -> str | None:
        """Return the first rank's objection, None where no rank has one."""
        reasons: list[str | None] = [None] * self.world.size
        dist.all_gather_object(reasons, why)
        return next((reason for reason in reasons if reason), None)

    def unusable(self, path: Path) -> str | None:
        """Return what is wrong with a checkpoint, as far as this rank reads it; None where nothing is."""
        try:
            manifest = read_manifest(path)
            for name, size in manifest["files"].items():
                if (path / name).stat().st_size != size:
                    return f"{name} is not whole"
            converts = self.world.rank == 0 and manifest["saved_by"]["processes"] != self.world.size
            for name in manifest["files"]:
                if name.endswith(".pt") and (converts or self.reads(name)):
                    with zipfile.ZipFile(path / name) as archive:
                        if damaged := archive.testzip():
                            return f"{name}: {damaged} is damaged"
        except (OSError, zipfile.BadZipFile, CheckpointError) as error:
            return str(error).split("\n")[0]
        return None

    def reads(self, name: str) -> bool:
        """Return True if a checkpoint's file of this name is for this rank, by DeepSpeed's naming."""
        mine = {"zero_pp_rank_": self.split.data_rank, "mp_rank_": self.split.model_rank,
                "-model_": self.split.tensor_rank}  # fmt: skip
        found = ((re.search(rf"{part}(\d+)", name), rank) for part, rank in mine.items())
        return all(int(number[1]) == rank for number, rank in found if number)

    def load(self, path: Path) -> None:
        manifest = read_manifest(path)
        was = manifest["options"]
        if other := [f"--{name} {was[name]}" for name in MODEL_OPTIONS if was[name] != getattr(self.args, name)]:
            raise ConfigError(f"cannot resume from {path}: its model has {' '.join(other)}")
        saved, mine = manifest["saved_by"], self.saved_by()
        fewer_or_more = saved["processes"] != mine["processes"]
        if {**saved, "processes": 0} != {**mine, "processes": 0} or (fewer_or_more and self.split.degrees):
            raise ConfigError(f"cannot resume from {path}: it was saved by {saved}, not {mine}")
        if fewer_or_more and mine["zero_stage"]:
            with deepspeed_universal.convert_checkpoint(
                path, Path(self.args.checkpoint_dir), self.world.rank
            ) as folder:
                deepspeed_universal.load_universal_checkpoint(self.model, folder)
        else:
            self.model.load_checkpoint(str(path.parent), tag=path.name)
        self.step = manifest["step"]
        self.report.event("resumed", step=self.step, path=str(path))


class PipelineTrainer(DeepSpeedTrainer):
    """Trainer whose `model` is DeepSpeed's engine around this rank's pipeline stage. All ranks know the loss once the
    last stage does."""

    def engine(self, model: GPT) -> Any:
        stage = deepspeed_parallel.build_pipeline_stage(model, self.split)
        groups = train_ddp.make_parameter_groups(stage, self.args.weight_decay)
        return deepspeed.initialize(model=stage, model_parameters=groups, config=self.settings())

    def advance(self, parallel: nn.Module) -> torch.Tensor:
        self.begin_step(self.split.data_rank, self.split.stage)
        batches = (self.train_data.draw(self.step, n) for n in range(self.args.gradient_accumulation_steps))
        return self.model.train_batch(batches).detach().squeeze()

    def validate(self, data: Samples) -> float:
        windows = list(data.windows())
        return self.model.eval_batch(iter(windows), num_micro_batches=len(windows)).item()


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of each checkpoint, newest first."""
    steps = ((path.name.removeprefix("checkpoint_step_"), path) for path in folder.glob("checkpoint_step_*"))
    return sorted(((int(step), path) for step, path in steps if step.isdigit() and path.is_dir()), reverse=True)


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST_NAME).read_bytes())
        if not {"step", "options", "saved_by", "files"} <= manifest.keys():
            raise CheckpointError("not a checkpoint of this trainer")
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{MANIFEST_NAME}: {error}") from error
    return manifest


def sync_path(path: Path) -> None:
    """Sync a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_config(args: argparse.Namespace, split: ParallelSplit) -> DeepSpeedConfig:
    """Return DeepSpeed's parsed configuration for this many processes; `args` are set to match it. Raise
    ConfigError."""
    try:
        config = DeepSpeedConfig(args.deepspeed_config, mpu=split if split.pipeline > 1 else None)
    except (AssertionError, ValueError, OSError) as error:
        why = str(error).split("\n")[0]
        raise ConfigError(f"{args.deepspeed_config} is not for {dist.get_world_size()} processes: {why}") from error
    params = config.optimizer_params or {}
    args.batch_size = config.train_micro_batch_size_per_gpu
    args.gradient_accumulation_steps = config.gradient_accumulation_steps
    args.learning_rate, args.lr_scaling = params.get("lr", args.learning_rate), "none"  # the file's is scaled already
    args.weight_decay = params.get("weight_decay", args.weight_decay)
    return config


def set_single_process_env() -> None:
    """Set the variables of a single process, which is a process group of one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def main(argv: list[str]) -> int:
    deepspeed.utils.logger.setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    try:
        args = parse_args(argv)
        for path in filter(None, (args.train_data_path, args.valid_data_path)):
            map_tokens(path, args)
        if "RANK" not in os.environ:
            set_single_process_env()
        kind = PipelineTrainer if args.pipeline_parallel_size > 1 else DeepSpeedTrainer
        return train_ddp.train(args, World.from_env(args), kind)
    except ConfigError as why:
        print(f"train_deepspeed: {why}", file=sys.stderr, flush=True)
        return 2


if __name__ == "__main__":
    train_ddp.run_and_exit(main, sys.argv[1:])
