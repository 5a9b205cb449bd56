"""Prints what a process finds when it begins, and whether CUDA starts in it, with and after the libraries named."""

import contextlib
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

BEFORE = [name for name in ("torch", "jax", "transformers", "triton", "pynvml", "numpy") if name in sys.modules]
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def threads() -> list[str]:
    """Returns the name of each thread of this process and the place in the kernel where it waits."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found.append(task.name)
        with contextlib.suppress(OSError):
            found[-1] = (task / "comm").read_text().strip()
            found[-1] += " " + (task / "wchan").read_text().strip()
    return found


def of_worker(_: int) -> int:
    """Returns how many threads a worker of a DataLoader has."""
    import torch

    torch.set_num_threads(1)  # as torch/utils/data/_utils/worker.py does
    return len(os.listdir("/proc/self/task"))


def main() -> None:
    told: dict[str, Any] = {"before": BEFORE, "pid": os.getpid(), "threads": threads()}
    told["threads_wanted"] = os.environ.get("OMP_NUM_THREADS")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    told["libcuda"] = sorted({line.split()[-1] for line in maps if "libcuda.so" in line})
    import torch

    told["threads_of_torch"] = torch.get_num_threads()
    with torch.multiprocessing.get_context("fork").Pool(1) as pool:
        told["threads_of_a_worker"] = pool.map(of_worker, [0])[0]
    told["initialised"] = torch.cuda.is_initialized()
    told["bad_fork"] = bool(torch.cuda._is_in_bad_fork())
    told["devices"] = torch.cuda.device_count()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    told["device"] = device
    told["sum"] = float((torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)).sum())
    rows = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(rows, batch_size=8, num_workers=2, pin_memory=device == "cuda")
    told["loaded"] = sum(float(batch[0].to(device).sum()) for batch in loader)
    told["libraries"] = {}
    for name in sys.argv[1:]:
        try:
            module = importlib.import_module(name)
            told["libraries"][name] = [str(module.__version__), USES[name]()]
        except Exception:
            traceback.print_exc()
            told["libraries"][name] = traceback.format_exc()[-600:]
    told["after"] = float((torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)).sum())
    print(json.dumps(told), flush=True)


def use_jax() -> str:
    import jax

    return f"{jax.devices()} {float(jax.jit(lambda value: value.sum())(jax.numpy.ones((8, 8))))}"


def use_transformers() -> str:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel  # type: ignore[import-not-found]

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32)).to(device)
    tokens = torch.zeros(2, 8, dtype=torch.long, device=device)
    return str(model(tokens, labels=tokens).loss.device)


USES = {"jax": use_jax, "transformers": use_transformers}

if __name__ == "__main__":
    main()
