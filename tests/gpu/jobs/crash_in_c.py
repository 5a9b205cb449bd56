"""Reads the address 0 in C, after it has used the card."""

import ctypes
import json
import time

import torch

value = torch.ones(1 << 20, device="cuda:0" if torch.cuda.is_available() else "cpu")
print(json.dumps({"step": 1, "loss": value.mean().item()}), flush=True)


def extension() -> None:
    ctypes.string_at(0)  # here


print(json.dumps({"wrong": time.time()}), flush=True)
extension()
