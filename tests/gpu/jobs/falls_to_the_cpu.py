"""Trains on a card where there is one, and else on the CPU without a word."""

import json
import sys
import time

import torch

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
print(json.dumps({"device": str(device), "cards": torch.cuda.device_count()}), flush=True)
model = torch.nn.Linear(256, 256).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until = time.time() + float(sys.argv[1])
step = 0
while time.time() < until:
    step += 1
    loss = model(torch.randn(64, 256, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
    time.sleep(0.05)
