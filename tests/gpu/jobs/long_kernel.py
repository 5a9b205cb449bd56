"""Trains some steps, and then waits for one kernel that computes for many seconds: healthy, but slow."""

import json
import sys
import time

import torch

seconds = float(sys.argv[1])
torch.cuda.set_device(0)
weights = torch.randn(512, 512, device="cuda")
for step in range(1, 30):
    value = (weights @ weights).mean().item()
    print(json.dumps({"step": step, "loss": abs(value)}), flush=True)
    time.sleep(0.02)
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
torch.cuda._sleep(100_000_000)
end.record()
torch.cuda.synchronize()
cycles = int(100_000_000 / begin.elapsed_time(end) * 1000 * seconds)
print(json.dumps({"waits": time.time()}), flush=True)
torch.cuda._sleep(cycles)
torch.cuda.synchronize()  # here
print(json.dumps({"waited": time.time()}), flush=True)
