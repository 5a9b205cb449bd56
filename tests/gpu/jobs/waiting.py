"""Trains a few steps, waits for the device for so many seconds in a function of its own, and trains on."""

import argparse
import json
import time

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=14.0)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.ones(8, 64, device=device)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    train(5)
    cycles = cycles_of(args.seconds) if device.type == "cuda" else 0
    print(json.dumps({"at": "the device"}), flush=True)
    began = time.monotonic()
    if device.type == "cuda":
        torch.cuda._sleep(cycles)
    wait_for_the_device(device, args.seconds)
    waited = time.monotonic() - began
    train(5)
    print(json.dumps({"waited": waited}), flush=True)


def wait_for_the_device(device: torch.device, seconds: float) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    else:
        time.sleep(seconds)


def cycles_of(seconds: float) -> int:
    """Measured: a GPU has no clock rate that could be relied on."""
    torch.cuda._sleep(1_000_000)
    torch.cuda.synchronize()
    began = time.perf_counter()
    torch.cuda._sleep(200_000_000)
    torch.cuda.synchronize()
    return int(200_000_000 / (time.perf_counter() - began) * seconds)


if __name__ == "__main__":
    main()
