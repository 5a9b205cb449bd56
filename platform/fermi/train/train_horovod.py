"""The small GPT of `train_ddp`, trained with Horovod: every rank holds the whole model, and the first gradients are
all-reduced while backward still computes the others.

    python -m fermi.train.train_horovod ...                                                    one process
    horovodrun --gloo -np 4 -H gn6:2,gn7:2 python -m fermi.train.train_horovod ...

Options, data order, checkpoints, output and exit codes are those of `train_ddp`; Horovod's own are below. The platform
sets HOROVOD_RANK and its like, and needs no horovodrun.
"""

import argparse
import os
import sys
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn

from fermi.train import train_ddp
from fermi.train.train_ddp import ConfigError, Report


class HorovodWorld(train_ddp.World):
    """Rank, size and device of this process, from Horovod's variables."""

    @classmethod
    def from_env(cls, args: argparse.Namespace) -> "HorovodWorld":
        rank, local_rank, size = (
            int(os.environ.get(name, default))
            for name, default in (("HOROVOD_RANK", 0), ("HOROVOD_LOCAL_RANK", 0), ("HOROVOD_SIZE", 1))
        )
        gpus = torch.cuda.device_count()
        index = local_rank if gpus > 1 else 0
        if index >= gpus > 0:
            raise ConfigError(f"local rank {local_rank} has no GPU: {gpus} visible")
        device = torch.device("cuda", index) if gpus else torch.device("cpu")
        return cls(rank, local_rank, size, device, distributed=size > 1)

    def join(self, args: argparse.Namespace) -> None:
        self.select_device(args)
        hvd.init()

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(value, name="mean", op=hvd.Average)

    def share(self, value: Any) -> Any:
        return hvd.broadcast_object(value, root_rank=0, name="share")  # else named by its type, which differs by rank

    def leave(self) -> None:
        hvd.barrier()
        hvd.shutdown()


class HorovodTrainer(train_ddp.Trainer):
    name = "train_horovod"
    world_type = HorovodWorld

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        chosen = os.environ.get("FERMI_HOROVOD_COMPRESSION") or "none"
        parser.add_argument(
            "--compression", choices=("none", "fp16"), default=chosen, help="compression of gradients in transit"
        )

    @staticmethod
    def resolve_options(args: argparse.Namespace) -> None:
        args.local_batch_size = None  # all ranks have as many
        if args.distributed or args.world_size:
            raise ConfigError("--distributed and --world_size start no processes here: use horovodrun -np")

    def __init__(self, args: argparse.Namespace, world: train_ddp.World, report: Report) -> None:
        super().__init__(args, world, report)
        self.optimizer: Any = hvd.DistributedOptimizer(
            self.optimizer,
            named_parameters=self.model.named_parameters(),
            compression=getattr(hvd.Compression, args.compression),
            backward_passes_per_step=args.gradient_accumulation_steps,
        )

    def parallel(self) -> nn.Module:
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        return self.model

    def advance(self, parallel: nn.Module) -> torch.Tensor:
        with self.optimizer.skip_synchronize():  # `reduce` has done so, before gradients are clipped
            return super().advance(parallel)

    def reduce(self) -> None:
        self.optimizer.synchronize()


def main(argv: list[str]) -> int:
    return train_ddp.main(argv, HorovodTrainer)


if __name__ == "__main__":
    train_ddp.run_and_exit(main, sys.argv[1:])
