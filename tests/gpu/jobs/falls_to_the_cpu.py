"""Trains on a card where there is one, and else on the CPU without a word."""

import json
import sys
import time

import torch

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
weights = torch.randn(256, 256, device=device) / 16
until = time.time() + float(sys.argv[1])
step = 0
while time.time() < until:
    step += 1
    weights = (weights @ weights).tanh() / 4 + 0.1
    print(json.dumps({"step": step, "loss": weights.square().mean().item()}), flush=True)
    time.sleep(0.05)
print(json.dumps({"device": str(device), "cards": torch.cuda.device_count()}), flush=True)
