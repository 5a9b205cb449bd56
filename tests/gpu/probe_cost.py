"""What the probe costs a step on the GPU: one process trains with and without it in turns, so that nothing else differs
(like bench/pulse.py, which counts processor time).

python -m tests.gpu.probe_cost FOLDER [--rounds 40]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from fermi.probe import setup
from fermi.probe.collectives import CollectiveWatcher
from fermi.probe.shared_page import PULSE_VARIABLE
from fermi.probe.start import start

STEP_SECONDS, STEPS = 0.005, 10
"""So few that the queue of launches never fills: then the time until the last launch is the host's own."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    torch.set_num_threads(1)
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", init_method=f"file://{args.folder}/meeting", rank=0, world_size=1
    )
    size = 8192 if on_gpu else 256
    matrix = torch.ones(size, size, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)
    room = torch.empty_like(matrix)
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).to(device)
    model = DistributedDataParallel(layers, device_ids=[0] if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.ones(256, 256, device=device)

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    def train(count: int, products: int) -> None:
        for _ in range(count):
            for _ in range(products):
                torch.mm(matrix, matrix, out=room)
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    def steps(count: int, products: int) -> tuple[float, float]:
        """Returns seconds of a step: until its launches had returned, and until the GPU had done it."""
        wait()
        began = time.perf_counter()
        train(count, products)
        launched = time.perf_counter()
        wait()
        return (launched - began) / count, (time.perf_counter() - began) / count

    steps(20, 4)
    once = min(steps(20, 0)[1] for _ in range(3))
    each = (min(steps(20, 16)[1] for _ in range(3)) - once) / 16
    products = max(1, round((STEP_SECONDS - once) / each))
    steps(20, products)

    given = setup.create_rank_files()
    os.environ.update(given.environment(os.environ))
    assert PULSE_VARIABLE in os.environ
    pulse = start()
    assert pulse is not None
    assert pulse.advance()
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    ours = dict(hooks)
    assert ours, "the probe has put no hook"
    told: dict[str, Any] = {"device": str(device), "products": products}

    def watched() -> tuple[float, float]:
        watch = CollectiveWatcher(pulse)
        hooks.update(ours)
        watch.start()
        found = steps(STEPS, products)
        watch.stop()
        hooks.clear()
        return found

    if on_gpu:
        told["synchronises"] = {"without": _synchronises(train, products)}
        hooks.update(ours)
        pulse.gpu_at = 0.0  # it asks for the memory in the next step, as it does every ten seconds
        told["synchronises"]["with"] = _synchronises(train, products)
        hooks.clear()
    before = pulse.steps
    watched()
    told["counted"] = pulse.steps - before
    gc.collect()
    with_, without = [], []
    for number in range(args.rounds):
        for one in ("with", "without") if number % 2 else ("without", "with"):
            if one == "with":
                with_.append(watched())
            else:
                without.append(steps(STEPS, products))
    (hook,) = ours.values()
    began = time.perf_counter()
    for _ in range(1000):
        hook(optimizer, (), {})
    told["hook"] = (time.perf_counter() - began) / 1000
    pulse.gpu_at = 0.0
    began = time.perf_counter()
    hook(optimizer, (), {})
    told["hook_asking_for_memory"] = time.perf_counter() - began
    pairs = list(zip(with_, without, strict=True))
    for place, name in ((0, "host"), (1, "whole")):
        told[name] = median(pair[1][place] for pair in pairs)
        told[f"{name}_ratio"] = median(pair[0][place] / pair[1][place] for pair in pairs)
        told[f"{name}_ratio_of_medians"] = median(one[place] for one in with_) / median(one[place] for one in without)
    print(json.dumps({"pulsed": told}), flush=True)
    dist.destroy_process_group()


def _synchronises(train: Any, products: int) -> str:
    """Returns what PyTorch says against a step that waits for the GPU, empty where none does."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(5, products)
        return ""
    except RuntimeError as error:
        return str(error)[:300]
    finally:
        torch.cuda.set_sync_debug_mode("default")


if __name__ == "__main__":
    main()
