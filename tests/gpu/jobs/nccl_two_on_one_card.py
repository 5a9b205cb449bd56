"""Asks NCCL for a group of ranks that all use the first card."""

import torch
import torch.distributed as dist

torch.cuda.set_device(0)
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(8, device="cuda:0"))  # here
torch.cuda.synchronize()
print("done", flush=True)
