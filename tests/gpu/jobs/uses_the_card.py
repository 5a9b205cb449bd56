"""Uses the first card at once, and needs it."""

import json
import time

import torch

print(json.dumps({"wrong": time.time()}), flush=True)
value = torch.ones(8, device="cuda")  # here
print(value.sum().item(), flush=True)
