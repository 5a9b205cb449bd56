"""Trains with steps of so many milliseconds, in turns that it is told to begin by files: `--turns FILE:SECONDS …`. Says
of each turn how long a step took."""

import argparse
import json
import os
import time
from statistics import fmean, median

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--products", type=int, default=0, help="of a step; 0: found by measuring")
    parser.add_argument("--turns", nargs="+", required=True)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    size = 4096 if device.type == "cuda" else 256
    model = nn.Linear(256, 256).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(256, 256, device=device)
    matrix = torch.ones(size, size, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def step(products: int) -> None:
        for _ in range(products):
            torch.mm(matrix, matrix, out=room)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        wait()

    def timed(products: int, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            step(products)
        return (time.perf_counter() - began) / count

    room = torch.empty_like(matrix)
    timed(4, 20)
    products = args.products
    if not products:
        once = timed(0, 40)
        each = (timed(16, 20) - once) / 16
        products = max(1, round((args.milliseconds / 1000 - once) / each))
    timed(products, 20)
    print(json.dumps({"products": products}), flush=True)
    for turn in args.turns:
        name, _, seconds = turn.rpartition(":")
        deadline = time.monotonic() + 60
        while not os.path.exists(name) and time.monotonic() < deadline:
            time.sleep(0.01)
        timed(products, 40)
        took, ends = [], time.monotonic() + float(seconds)
        while time.monotonic() < ends:
            took.append(timed(products, 1))
        told = {"turn": os.path.basename(name), "median": median(took), "mean": fmean(took), "steps": len(took)}
        print(json.dumps({**told, "worst": max(took)}), flush=True)


if __name__ == "__main__":
    main()
