"""Calls each collective of NCCL on the card, and says what was wrong with any."""

import json
import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda:0" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    began = time.time()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    wrong = []
    one = torch.full((1 << 16,), float(rank + 1), device=device)
    dist.all_reduce(one)
    group = time.time() - began
    if one[-1].item() != world * (world + 1) / 2:
        wrong.append(f"all_reduce: {one[-1].item()}")
    told = torch.full((8,), float(rank), device=device)
    dist.broadcast(told, src=0)
    if told[0].item() != 0:
        wrong.append(f"broadcast: {told[0].item()}")
    gathered = [torch.zeros(4, device=device) for _ in range(world)]
    dist.all_gather(gathered, torch.full((4,), float(rank), device=device))
    if [each[0].item() for each in gathered] != list(range(world)):
        wrong.append(f"all_gather: {gathered}")
    if on_gpu:
        part = torch.zeros(4, device=device)
        dist.reduce_scatter(part, [torch.full((4,), 2.0, device=device) for _ in range(world)])
        if part[0].item() != 2.0 * world:
            wrong.append(f"reduce_scatter: {part[0].item()}")
        flat = torch.zeros(4 * world, device=device)
        dist.all_gather_into_tensor(flat, torch.ones(4, device=device))
        if flat.sum().item() != 4.0 * world:
            wrong.append(f"all_gather_into_tensor: {flat}")
    dist.barrier()
    rendered = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("NCCL_", "TORCH_NCCL", "TORCH_FR", "GLOO_", "MASTER_", "FERMI_BACKEND", "CUDA_"))
    }
    print(
        json.dumps(
            {
                "wrong": wrong,
                "backend": dist.get_backend(),
                "device": str(device),
                "world": world,
                "group": group,
                "env": rendered,
                "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else "",
            }
        ),
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
