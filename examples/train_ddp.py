"""DistributedDataParallel around a model of your own, in one call:

    from examples.train_ddp import train_ddp

    if __name__ == "__main__":
        train_ddp(
            model=YourModel(), input_size=100, hidden_size=200, output_size=10, batch_size=32, epochs=10, lr=0.001
        )

The launcher's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) say who this process is: a group of
workers sets them, and so do a training task and torchrun. Without them the same call trains in one process.

As a script it trains the small network that `train_ddp` makes where no model is given:

    torchrun --nproc_per_node=4 examples/train_ddp.py --epochs 10
"""

import argparse
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from fermi.train.train_ddp import (
    EXIT_TERMINATED,
    CheckpointError,
    ConfigError,
    World,
    list_checkpoints,
    load_checkpoint,
    print_line,
    save_checkpoint,
)

SEED, SAMPLES, HELD_OUT, LOG_EVERY, KEEP_CHECKPOINTS = 1337, 2048, 256, 10, 3


def train_ddp(
    model: nn.Module | None = None,
    input_size: int = 100,
    hidden_size: int = 200,
    output_size: int = 10,
    batch_size: int = 32,
    epochs: int = 10,
    lr: float = 0.001,
    dataset: Dataset | None = None,
) -> float:
    """Trains on all ranks, and returns the last step's loss, which is the mean over all ranks.

    `model`: from (batch, input_size) to the scores of `output_size` classes; None: a network with one hidden layer of
    `hidden_size`. `batch_size`: of each rank. `dataset`: pairs of an input and its class; None: made-up points whose
    class a fixed network decides. A task that is restarted goes on from its newest checkpoint. Where SIGTERM stops the
    training, a checkpoint is saved and this process ends with exit code 143.
    """
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terminated.append(number))
    try:
        world = join()
        run = Run(world, model or network(input_size, hidden_size, output_size), lr)
        made = dataset is None
        points = made_up(SAMPLES, input_size, output_size, seed=SEED) if dataset is None else dataset
        run.check(points, output_size)
        held_out = made_up(HELD_OUT, input_size, output_size, seed=SEED + 1) if made else None
        loss = run.train(points, held_out, batch_size, epochs, terminated)
    except ConfigError as why:
        print(f"train_ddp: {why}", file=sys.stderr, flush=True)
        sys.exit(2)
    world.leave()
    if run.stopped:
        sys.exit(EXIT_TERMINATED)
    return loss


def join() -> World:
    """Says `[Rank 0] World Size: 4, Local Rank: 0, Master Addr: gn6`, and meets the other ranks."""
    env = os.environ.get
    args = argparse.Namespace(
        backend=env("FERMI_BACKEND") or "auto", timeout_seconds=float(env("FERMI_TIMEOUT_SECONDS") or 0),
        distributed=False, world_size=None, local_rank=0, tf32=True,
    )  # fmt: skip
    world = World.from_env(args)
    world.join(args)
    return world


def network(input_size: int, hidden_size: int, output_size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, output_size))


def made_up(count: int, input_size: int, output_size: int, seed: int) -> TensorDataset:
    """The same points on every rank: they depend on the seed alone."""
    points = torch.randn(count, input_size, generator=torch.Generator().manual_seed(seed))
    decides = torch.randn(input_size, output_size, generator=torch.Generator().manual_seed(SEED))
    return TensorDataset(points, (points @ decides).argmax(1))


class Batches(NamedTuple):
    """This rank's part of each epoch, which all ranks shuffle alike."""

    sampler: DistributedSampler
    loader: DataLoader

    @classmethod
    def of(cls, points: Dataset, world: World, batch_size: int) -> "Batches":
        sampler: DistributedSampler = DistributedSampler(points, world.size, world.rank, seed=SEED)
        return cls(sampler, DataLoader(points, batch_size, sampler=sampler))

    def after(self, step: int, epochs: int):  # type: ignore[no-untyped-def]
        """From the step after `step` on: what a run that is resumed there had not seen yet."""
        for epoch in range(step // len(self.loader), epochs):
            self.sampler.set_epoch(epoch)
            yield from itertools.islice(self.loader, step % len(self.loader), None)
            step = 0


class Run:
    """One rank's training. `step` counts the optimizer steps over all attempts."""

    def __init__(self, world: World, model: nn.Module, lr: float) -> None:
        self.world, self.model, self.step, self.stopped = world, model.to(world.device), 0, False
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.folder = Path(os.environ.get("FERMI_CHECKPOINT_DIR") or "checkpoints")
        self.resume(os.environ.get("FERMI_RESUME_FROM", ""))

    def report(self, **values: object) -> None:
        """Rank 0's lines, one JSON object each: the platform draws a curve of each number that comes with a `step`."""
        if self.world.rank == 0:
            print_line(json.dumps(values))

    def parallel(self) -> nn.Module:
        if not self.world.distributed:
            return self.model
        return DistributedDataParallel(self.model, [self.world.device] if self.world.device.type == "cuda" else None)

    def check(self, points: Dataset, output_size: int) -> None:
        """Raises Refused where model, data and sizes contradict each other."""
        point = torch.as_tensor(points[0][0])
        try:
            with torch.no_grad():
                found = tuple(self.model(torch.stack([point] * 2).to(self.world.device)).shape)
        except RuntimeError as error:
            raise ConfigError(f"the model does not take a batch of shape {(2, *point.shape)}: {error}") from None
        if found != (2, output_size):
            raise ConfigError(f"the model answers two points with the shape {found}: output_size is {output_size}")

    def train(
        self, points: Dataset, held_out: TensorDataset | None, batch_size: int, epochs: int, terminated: list[int]
    ) -> float:
        """To the last step, or to the step at which any rank was told to stop: all ranks stop at the same one."""
        batches, device, value = Batches.of(points, self.world, batch_size), self.world.device, 0.0
        per_epoch = len(batches.loader)
        last = epochs * per_epoch
        self.report(event="started", world_size=self.world.size, device=str(device), total_steps=last)
        parallel = self.parallel()
        logged, clock = self.step, time.perf_counter()
        for inputs, classes in batches.after(self.step, epochs):
            loss = F.cross_entropy(parallel(inputs.to(device)), classes.to(device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            agreed = self.world.mean(torch.stack([loss.detach(), torch.full_like(loss, bool(terminated))]))
            value, self.stopped = agreed[0].item(), agreed[1].item() > 0 and self.step < last
            at_end = self.step == last or self.stopped
            if self.step % LOG_EVERY == 0 or at_end:
                done = (self.step - logged) * batch_size * self.world.size
                speed = round(done / (time.perf_counter() - clock), 1)
                self.report(step=self.step, loss=value, lr=self.optimizer.param_groups[0]["lr"], samples_per_s=speed)
                logged, clock = self.step, time.perf_counter()
            if self.step % per_epoch == 0 or at_end:
                self.save(self.measure(held_out))
            if self.stopped:
                break
        self.report(event="stopped" if self.stopped else "finished", step=self.step)
        return value

    @torch.no_grad()
    def measure(self, held_out: TensorDataset | None) -> dict[str, float]:
        if held_out is None:
            return {}
        inputs, classes = (tensor.to(self.world.device) for tensor in held_out.tensors)
        self.model.eval()
        scores = self.model(inputs)
        self.model.train()
        found = {
            "val_loss": F.cross_entropy(scores, classes).item(),
            "val_accuracy": (scores.argmax(1) == classes).float().mean().item(),
        }
        self.report(step=self.step, **found)
        return found

    def save(self, measured: dict[str, float]) -> None:
        """Rank 0 writes."""
        if self.world.rank == 0:
            path = self.folder / f"checkpoint_step_{self.step}.pt"
            state = {"step": self.step, "options": {}, "scaler": {}, "model": self.model.state_dict()}
            size = save_checkpoint(path, {**state, "optimizer": self.optimizer.state_dict()}, KEEP_CHECKPOINTS)
            self.report(event="checkpoint", step=self.step, path=str(path), size_bytes=size, **measured)

    def resume(self, path: str) -> None:
        if path == "auto":
            path = self.world.share(self.newest() if self.world.rank == 0 else None)
        if not path:
            return
        try:
            state = load_checkpoint(Path(path))
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (CheckpointError, RuntimeError, ValueError) as why:
            raise ConfigError(f"cannot resume from {path}: {why}") from None
        self.step = state["step"]
        self.report(event="resumed", step=self.step, path=path)

    def newest(self) -> str:
        for _, path in list_checkpoints(self.folder):
            try:
                load_checkpoint(path)
            except CheckpointError:
                continue
            return str(path)
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"input_size": 100, "hidden_size": 200, "output_size": 10, "batch_size": 32, "epochs": 10}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=0.001)
    train_ddp(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
