"""Trains over gloo on one card, saves every few steps, and goes on from what was saved."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

path, last = Path(sys.argv[1]), int(sys.argv[2])
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
dist.init_process_group("gloo")
rank = dist.get_rank()
state: dict[str, Any] = {"step": 0, "weights": torch.ones(1 << 20)}
if path.exists():
    state = torch.load(path, map_location="cpu")
weights, first = state["weights"].to(device), int(state["step"])
print(json.dumps({"first": first, "pid": os.getpid()}), flush=True)
for step in range(first + 1, last + 1):
    weights *= 0.99
    mean = weights.mean()
    dist.all_reduce(mean)
    if rank == 0:
        print(json.dumps({"step": step, "loss": mean.item() / dist.get_world_size()}), flush=True)
        if step % 10 == 0:
            torch.save({"step": step, "weights": weights.cpu()}, f"{path}.new")
            os.replace(f"{path}.new", path)
    time.sleep(0.05)
dist.destroy_process_group()
