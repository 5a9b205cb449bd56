"""Trains with a token beyond the vocabulary (`embedding`), or a class beyond the model's (`class`)."""

import json
import sys
import time

import torch
from torch import nn

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
embedding, head = nn.Embedding(100, 16).to(device), nn.Linear(16, 10).to(device)


def train(tokens: torch.Tensor, classes: torch.Tensor) -> float:
    found = head(embedding(tokens))  # embedding
    loss = nn.functional.cross_entropy(found, classes)  # class
    loss.backward()
    return loss.item()  # later


tokens, classes = torch.arange(64, device=device), torch.arange(64, device=device) % 10
for step in range(3):
    print(json.dumps({"step": step, "loss": train(tokens, classes)}), flush=True)
if sys.argv[1] == "embedding":
    tokens = tokens + 90
else:
    classes = classes + 5
print(json.dumps({"wrong": time.time()}), flush=True)
train(tokens, classes)
