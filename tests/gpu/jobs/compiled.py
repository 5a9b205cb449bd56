"""Trains a small transformer eagerly and compiled, and steps AdamW in its three ways: what each takes. Where there is
no card nothing becomes machine code: a C++ compiler takes a minute of a processor for it.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
WIDTH, LAYERS, HEADS, BATCH, LENGTH = (1024, 2, 16, 64, 512) if ON_GPU else (32, 1, 2, 2, 16)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(heads.transpose(1, 2).flatten(2))
        return x + self.contract(F.gelu(self.expand(self.norm_2(x))))


def wait() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def timed(work: Callable[[], object], times: int) -> float:
    """Returns milliseconds of one call."""
    wait()
    began = time.perf_counter()
    for _ in range(times):
        work()
    wait()
    return (time.perf_counter() - began) / times * 1000


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(LAYERS))).to(DEVICE)
    batch = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE)

    def step(module: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = (module(batch).float() - batch.roll(1, 1)).square().mean()
        loss.backward()
        return loss.detach()

    eager, compiled = step(model).item(), torch.compile(model, backend="inductor" if ON_GPU else "aot_eager")
    began = time.perf_counter()
    other = step(compiled).item()
    first = time.perf_counter() - began
    print(f"compiled: first step after {first:.1f} s, loss {other:.5f}", flush=True)
    for module in (model, compiled):
        timed(partial(step, module), 10)  # kernels are loaded, memory is taken
    rounds = [[timed(partial(step, module), 10) for module in (model, compiled)] for _ in range(5)]
    print("ms a step, eager and compiled:", rounds, flush=True)
    eager_ms, compiled_ms = (median(times) for times in zip(*rounds, strict=True))
    ways: dict[str, dict[str, Any]] = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "loop": {"foreach": False, "fused": False},
    }
    steps = {}
    for name, way in ways.items():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, **way)
        optimizer.step()
        steps[f"{name}_ms"] = timed(optimizer.step, 10)
    told = {"device": str(DEVICE), "eager_ms": eager_ms, "compiled_ms": compiled_ms, "first_compiled_s": first,
            "off": abs(eager - other) / eager, **steps}  # fmt: skip
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
