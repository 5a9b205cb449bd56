"""Trains in bfloat16 until a learning rate that is far too high makes the loss no number in step 5."""

import json
import time

import torch
from torch import nn

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device, torch.bfloat16)
rows = torch.randn(128, 64, device=device, dtype=torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1, 3000):
    optimizer.zero_grad()
    loss = (model(rows) - rows).square().mean()
    loss.backward()
    if step == 4:
        for group in optimizer.param_groups:
            group["lr"] = 3e38
    if step == 5:
        print(json.dumps({"wrong": time.time()}), flush=True)
    optimizer.step()
    print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
    time.sleep(0.02)
