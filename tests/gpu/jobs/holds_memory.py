"""Holds so many GiB of the first card until its standard input ends."""

import os
import sys

import torch

held = torch.ones(int(sys.argv[1]) << 30, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
print("holds", os.getpid(), held.numel(), flush=True)
sys.stdin.read()
