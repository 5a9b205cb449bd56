"""A training script that knows nothing of the platform: settings as globals, `torchrun`'s variables, lines for people.

torchrun --nproc_per_node=4 train.py --max_iters=100
"""

import math
import os
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch
from model import Decoder  # type: ignore[import-not-found]
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

max_iters = 100_000
batch_size, block_size = 4, 32
n_layer, n_embd, n_head = 2, 32, 2
learning_rate, min_lr, warmup_iters = 1e-3, 1e-4, 10
data_file = ""
for argument in sys.argv[1:]:
    name, _, value = argument.removeprefix("--").partition("=")
    globals()[name] = type(globals()[name])(value)

ddp = int(os.environ.get("RANK", "-1")) != -1
rank = int(os.environ["RANK"]) if ddp else 0
device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
if ddp:
    init_process_group("nccl" if torch.cuda.is_available() else "gloo")
torch.manual_seed(1337 + rank)
context = nullcontext() if device == "cpu" else torch.amp.autocast("cuda", torch.bfloat16)


def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets from random places of the file."""
    data = np.memmap(data_file, dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - block_size - 1, (batch_size,))
    rows = torch.stack([torch.from_numpy(data[at : at + block_size + 1].astype(np.int64)) for at in starts])
    return rows[:, :-1].to(device), rows[:, 1:].to(device)


def get_lr(step: int) -> float:
    """Return the learning rate: a linear warm-up, then a cosine."""
    if step < warmup_iters:
        return learning_rate * (step + 1) / warmup_iters
    share = min(1.0, (step - warmup_iters) / max(1, max_iters - warmup_iters))
    return min_lr + 0.5 * (1 + math.cos(math.pi * share)) * (learning_rate - min_lr)


model = Decoder(256, block_size, n_layer, n_embd, n_head).to(device)
if rank == 0:
    print(f"number of parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M")
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
if ddp:
    model = DistributedDataParallel(model)
began = time.time()
for step in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)
    x, y = get_batch()
    with context:
        loss = model(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    now = time.time()
    if rank == 0:
        print(f"iter {step}: loss {loss.item():.4f}, time {(now - began) * 1000:.2f}ms", flush=True)
    began = now
if ddp:
    destroy_process_group()
