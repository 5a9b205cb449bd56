"""Trains by replaying a CUDA graph of a whole step, or with a model that `torch.compile` makes graphs of. Without CUDA
the steps that no optimizer makes are made by hand, and nothing is compiled to machine code."""

import argparse
import json
import os
import time
from collections.abc import Callable

import torch
from torch import nn

WARM = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--hold", required=True)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = [layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    batch = torch.randn(256, 512, device=device)
    if args.compile:
        compiled(model, batch, args.steps)
    else:
        replayed(model, batch, args.seconds)
    deadline = time.monotonic() + 90
    while not os.path.exists(args.hold) and time.monotonic() < deadline:
        time.sleep(0.05)


def compiled(model: nn.Module, batch: torch.Tensor, steps: int) -> None:
    fast = torch.compile(model, mode="reduce-overhead") if batch.is_cuda else torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        torch.compiler.cudagraph_mark_step_begin()
        loss = (fast(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(json.dumps({"steps": steps, "loss": loss.item()}), flush=True)


def replayed(model: nn.Module, batch: torch.Tensor, seconds: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=batch.is_cuda)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    again = captured(step) if batch.is_cuda else by_hand(step, model, batch)
    count, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        loss = again()
        count += 1
        if batch.is_cuda and count % 10 == 0:
            torch.cuda.synchronize()
    print(json.dumps({"replays": count, "loss": loss.item()}), flush=True)


def captured(step: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def again() -> torch.Tensor:
        graph.replay()
        return loss

    return again


def by_hand(step: Callable[[], torch.Tensor], model: nn.Module, batch: torch.Tensor) -> Callable[[], torch.Tensor]:
    for _ in range(WARM + 1):
        step()

    def again() -> torch.Tensor:
        loss = (model(batch) - batch).square().mean()
        with torch.no_grad():
            for weight, slope in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()]), strict=True):
                weight.sub_(slope, alpha=1e-4)
        return loss.detach()

    return again


if __name__ == "__main__":
    main()
