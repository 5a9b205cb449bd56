"""Trains with DDP over gloo, every rank on the first card: as many ranks as there are, one global batch."""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--hold", type=float, default=0.0, help="seconds to keep the memory after training")
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda:0" if on_gpu else "cpu")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(11)
    rows, wanted = torch.randn(64, 64, generator=generator), torch.randn(64, 8, generator=generator)
    share = slice(rank * 64 // world, (rank + 1) * 64 // world)
    rows, wanted = rows[share].to(device), wanted[share].to(device)
    held = torch.ones((rank + 1) << 28, dtype=torch.uint8, device=device) if on_gpu else None  # 256 MiB for each number
    losses = []
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = (model(rows) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
        if rank == 0:
            print(f"step {step} loss {losses[-1]:.6f}", flush=True)
    print(
        json.dumps(
            {
                "losses": losses,
                "device": str(device),
                "world": world,
                "pid": os.getpid(),
                "allocated": torch.cuda.memory_allocated() if on_gpu else 0,
                "held": held.numel() if held is not None else 0,
            }
        ),
        flush=True,
    )
    time.sleep(args.hold)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
