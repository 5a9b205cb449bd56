"""Two ranks of gloo on one card, of which rank 1 leaves an all_reduce out."""

import json
import time

import torch
import torch.distributed as dist

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(1024, device=device)
for step in range(1, 200):
    dist.all_reduce(value)
    value /= dist.get_world_size()
    if rank == 0:
        print(json.dumps({"step": step, "loss": value.mean().item()}), flush=True)
    time.sleep(0.02)
    if step == 40:
        if rank == 1:
            print(json.dumps({"wrong": time.time()}), flush=True)
        else:
            dist.all_reduce(torch.ones(7, device=device))  # here
        dist.all_gather([torch.zeros(3, device=device) for _ in range(2)], torch.ones(3, device=device))
dist.destroy_process_group()
