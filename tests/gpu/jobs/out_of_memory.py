"""Asks for more memory than the card has: in a tensor, or in a layer of a model; `--share`: than this part of it."""

import argparse
import json
import time

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(512, 4096)
        self.layer = nn.Linear(4096, 4096)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(self.embedding(tokens))  # forward
        return found


parser = argparse.ArgumentParser()
parser.add_argument("--where", default="tensor")
parser.add_argument("--share", type=float, default=0.0)
args = parser.parse_args()
torch.cuda.set_device(0)
total = torch.cuda.get_device_properties(0).total_memory
if args.share:
    torch.cuda.set_per_process_memory_fraction(args.share)
if args.where == "model":
    model = Model().cuda()
    tokens = torch.zeros(int(total * 1.2) // (4096 * 4), dtype=torch.int64, device="cuda")
    print(json.dumps({"wrong": time.time()}), flush=True)
    print(model(tokens).mean().item(), flush=True)
else:
    small = torch.ones(1 << 28, dtype=torch.uint8, device="cuda")
    asked = 8 << 30 if args.share else int(total * 0.99)
    print(json.dumps({"wrong": time.time(), "asked": asked, "total": total}), flush=True)
    large = torch.empty(asked, dtype=torch.uint8, device="cuda")  # tensor
    print(large[0].item(), flush=True)
