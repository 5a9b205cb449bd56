"""The launch test: whether these processes find each other, before anything is trained.

    torchrun --nproc_per_node=4 examples/test_launch.py

Under a group of workers: copy it into the workspace and make it the group's script. Each rank shows its variables,
meets all others, adds up numbers with them and measures how fast. Rank 0 compares what the ranks were told.

Exit code 0: all is well; 1: the ranks contradict each other, or the sum is wrong; 2: it was started wrongly.
"""

import argparse
import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from fermi.train.train_ddp import ConfigError, World, print_line, run_and_exit

SHOWN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK")
NUMBERS, ROUNDS = 1 << 20, 10  # 4 MiB of float32


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    backend = os.environ.get("FERMI_BACKEND") or "auto"
    parser.add_argument("--backend", choices=("auto", "nccl", "gloo"), default=backend)
    parser.add_argument("--timeout_seconds", type=float, default=60, help="to wait for the other ranks")
    args = parser.parse_args(argv)
    vars(args).update(distributed=True, world_size=None, local_rank=0, tf32=True)
    try:
        if "RANK" not in os.environ:
            raise ConfigError("RANK is not set: start it with torchrun, or as the script of a group of workers")
        world = World.from_env(args)
        print_line(f"[Rank {world.rank}] " + " ".join(f"{name}={os.environ.get(name, '-')}" for name in SHOWN))
        world.join(args)
    except ConfigError as why:
        print(f"test_launch: {why}", file=sys.stderr, flush=True)
        return 2
    places: list[Any] = [None] * world.size
    host = os.environ.get("NODE_RANK") or socket.gethostname()
    dist.all_gather_object(places, (world.rank, world.local_rank, host, socket.gethostname(), str(world.device)))
    wrong = [*contradictions(places), *wrong_sum(world)]
    seconds = all_reduce_seconds(world)
    rate = 2 * (world.size - 1) / world.size * NUMBERS * 4 / seconds / 1e6
    if world.rank == 0:
        for rank, local_rank, node, name, device in places:
            report(event="rank", rank=rank, local_rank=local_rank, node=node, host=name, device=device)
        report(step=1, all_reduce_ms=round(seconds * 1e3, 3), bus_mb_per_s=round(rate, 1))
        report(event="launch_test", ok=not wrong, world_size=world.size, wrong=wrong)
    world.leave()
    return 1 if wrong else 0


def report(**values: object) -> None:
    print_line(json.dumps(values))


def contradictions(places: list[tuple[int, int, str, str, str]]) -> Iterator[str]:
    """Of all ranks' places: a number that is there twice, and local ranks that do not count from 0 on a node."""
    if (ranks := [place[0] for place in places]) != list(range(len(places))):
        yield f"the ranks are {ranks}"
    by_node = sorted(places, key=lambda place: (place[2], place[1]))
    for node, here in itertools.groupby(by_node, key=lambda place: place[2]):
        if (local := [place[1] for place in here]) != list(range(len(local))):
            yield f"the local ranks on node {node} are {local}"


def wrong_sum(world: World) -> Iterator[str]:
    total = torch.tensor(float(world.rank), device=world.device)
    dist.all_reduce(total)
    expected = world.size * (world.size - 1) / 2
    if total.item() != expected:
        yield f"the ranks add up to {total.item()} instead of {expected} on rank {world.rank}"


def all_reduce_seconds(world: World) -> float:
    """Of one all-reduce of `NUMBERS` numbers: the best of some."""
    numbers, best = torch.ones(NUMBERS, device=world.device), float("inf")
    for _ in range(ROUNDS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(numbers)
        numbers[0].item()  # until it is done, on a GPU too
        best = min(best, time.perf_counter() - began)
        numbers.fill_(1.0)
    return best


if __name__ == "__main__":
    run_and_exit(main, sys.argv[1:])
