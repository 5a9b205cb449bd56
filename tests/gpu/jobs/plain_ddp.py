"""Trains a small transformer with plain DDP, as users write it: nothing of it knows the platform."""

import argparse
import json
import os
import time

BEGAN = time.time()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    imported = time.time()
    local_rank = int(os.environ["LOCAL_RANK"])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
        torch.cuda.synchronize()
    context = time.time()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    dist.barrier()
    met = time.time()
    layer = nn.TransformerEncoderLayer(args.width, 4, 4 * args.width, batch_first=True)
    model = DistributedDataParallel(
        nn.TransformerEncoder(layer, 2).to(device), device_ids=[local_rank] if on_gpu else None
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(args.batch, args.length, args.width, device=device)
    first = None
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = (model(batch) - batch.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        value = loss.item()
        first = first or time.time()
        if dist.get_rank() == 0:
            print(f"step {step} loss {value:.4f}", flush=True)
    if dist.get_rank() == 0:
        print(
            json.dumps(
                {
                    "began": BEGAN,
                    "imported": imported,
                    "context": context,
                    "met": met,
                    "first_step": first,
                    "ended": time.time(),
                    "device": str(device),
                    "world": dist.get_world_size(),
                }
            ),
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
