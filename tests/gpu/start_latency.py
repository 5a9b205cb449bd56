"""How long CUDA, NCCL, cuBLAS and the first step of an optimizer take to begin, each in a process in which nothing of
CUDA has begun: forked from one that has imported PyTorch, so that the import is paid once.

python -m tests.gpu.start_latency FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module

import torch
import torch.distributed as dist

Times = dict[str, float]
GROUPS = 6


class Clock:
    def __init__(self) -> None:
        self.times: Times = {}
        self.at = time.perf_counter()

    def lap(self, name: str) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.times[name], self.at = now - self.at, now


def begin_context(clock: Clock, device: torch.device, folder: str) -> None:
    torch.cuda.is_available()
    clock.lap("driver found")
    torch.zeros(1, device=device)
    clock.lap("context, first allocation")
    torch.ones(1, device=device).add_(1)
    clock.lap("first kernel")
    torch.ones(1, device=device).add_(1)
    clock.lap("the same again")


def join_group(device: torch.device, folder: str) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting-{os.getpid()}", rank=0, world_size=1)


def begin_group(clock: Clock, device: torch.device, folder: str) -> None:
    value = torch.zeros(1, device=device)
    clock.lap("context")
    join_group(device, folder)
    clock.lap("init_process_group")
    dist.all_reduce(value)
    clock.lap("communicator and first all_reduce")
    dist.all_reduce(value)
    clock.lap("second all_reduce")
    dist.destroy_process_group()
    clock.lap("destroy_process_group")


def begin_groups(clock: Clock, device: torch.device, folder: str) -> None:
    """Several communicators, as Megatron makes one for each way in which it splits."""
    value = torch.zeros(1, device=device)
    join_group(device, folder)
    dist.all_reduce(value)
    clock.lap("context and first communicator")
    groups = [dist.new_group([0]) for _ in range(GROUPS)]
    clock.lap(f"{GROUPS} more groups")
    for group in groups:
        dist.all_reduce(value, group=group)
    clock.lap(f"{GROUPS} more communicators")
    dist.destroy_process_group()
    clock.lap("destroy_process_group")


def begin_products(clock: Clock, device: torch.device, folder: str) -> None:
    matrix = torch.ones(1024, 1024, device=device)
    clock.lap("context")
    matrix @ matrix
    clock.lap("cuBLAS and first product")
    matrix @ matrix
    clock.lap("second product")
    low = matrix.bfloat16()
    clock.lap("to bfloat16")
    low @ low
    clock.lap("first product in bfloat16")


def begin_optimizer(clock: Clock, device: torch.device, folder: str, *, fused: bool = False) -> None:
    layer = torch.nn.Linear(256, 256).to(device)
    clock.lap("context and a layer")
    optimizer = torch.optim.AdamW(layer.parameters(), fused=fused)
    clock.lap("AdamW")
    layer(torch.ones(8, 256, device=device)).sum().backward()
    clock.lap("forward and backward")
    optimizer.step()
    clock.lap("first step")
    optimizer.step()
    clock.lap("second step")


def begin_fused(clock: Clock, device: torch.device, folder: str) -> None:
    begin_optimizer(clock, device, folder, fused=True)


WAYS: dict[str, Callable[[Clock, torch.device, str], None]] = {
    "CUDA": begin_context,
    "NCCL": begin_group,
    "NCCL, several groups": begin_groups,
    "cuBLAS": begin_products,
    "optimizer": begin_optimizer,
    "fused optimizer": begin_fused,
}


def main() -> None:
    folder, told = sys.argv[1], dict[str, dict[str, object]]()
    torch.set_num_threads(1)
    import_module("torch._dynamo")  # what optimizers import is not to be counted
    for name, way in WAYS.items():
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            _tell(way, folder, writing)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            told[name] = json.loads(pipe.read() or '{"error": "it ended"}')
        os.waitpid(child, 0)
    print(json.dumps({"beginnings": told}), flush=True)


def _tell(way: Callable[[Clock, torch.device, str], None], folder: str, pipe: int) -> None:
    found: dict[str, object] = {}
    try:
        clock = Clock()
        device = torch.device("cuda", 0) if torch.cuda.device_count() else torch.device("cpu")
        way(clock, device, folder)
        found.update(clock.times)
    except BaseException:
        found["error"] = traceback.format_exc()[-1500:]
    os.write(pipe, json.dumps(found).encode())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
