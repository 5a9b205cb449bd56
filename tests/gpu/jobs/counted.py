"""Trains so many steps and says how many; then evaluates and saves for a while, if asked; and waits for a file."""

import argparse
import json
import os
import tempfile
import time

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--optimizer", choices=("foreach", "fused", "loop"), default="foreach")
    parser.add_argument("--scaler", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--phases", type=float, default=0.0, help="seconds of evaluating, and of saving")
    parser.add_argument("--hold", required=True, help="the file that is waited for at the end")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    time.sleep(args.phases)  # so that a look finds it starting
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, foreach=args.optimizer == "foreach", fused=args.optimizer == "fused"
    )
    scaler = torch.amp.GradScaler(device.type, enabled=args.scaler)
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    batch, skipped = torch.randn(64, 256, device=device), 0
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        for _ in range(args.accumulate):
            with torch.autocast(device.type, dtype=dtype, enabled=args.scaler):
                loss = (model(batch) - batch).float().square().mean() / args.accumulate
            if args.scaler and step % 5 == 0:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    inside = {int(state["step"]) for state in optimizer.state.values()}
    print(json.dumps({"steps": args.steps, "skipped": skipped, "inside": sorted(inside)}), flush=True)
    if args.phases:
        model.eval()
        print(json.dumps({"at": "evaluating"}), flush=True)
        time.sleep(args.phases)
        print(json.dumps({"at": "saving"}), flush=True)
        with tempfile.TemporaryFile() as file:
            torch.save({"model": model.state_dict(), "slow": Slow(args.phases)}, file)
    print(json.dumps({"at": "waiting"}), flush=True)
    deadline = time.monotonic() + 90
    while not os.path.exists(args.hold) and time.monotonic() < deadline:
        time.sleep(0.05)


class Slow:
    """Takes so many seconds to be saved."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __getstate__(self) -> dict[str, float]:
        time.sleep(self.seconds)
        return {"seconds": self.seconds}


if __name__ == "__main__":
    main()
