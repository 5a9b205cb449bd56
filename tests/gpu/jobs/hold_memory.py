"""Holds memory of a GPU (of the processor where there is none) until it is ended, and says so. With `--work` it
multiplies matrices and copies from the host meanwhile."""

import argparse
import json
import os
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--work", action="store_true")
    args = parser.parse_args()
    began = time.time()
    import torch

    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    told: dict[str, Any] = {
        "holding": args.gib, "device": str(device), "pid": os.getpid(), "count": torch.cuda.device_count(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "local_rank": os.environ.get("LOCAL_RANK"),
        "attempt": os.environ.get("FERMI_ATTEMPT"), "uuid": "",
    }  # fmt: skip
    if cuda:
        torch.cuda.set_device(device)
        told |= {"uuid": str(torch.cuda.get_device_properties(device).uuid), "free": torch.cuda.mem_get_info()[0]}
    held = torch.empty(int(args.gib * 2**30), dtype=torch.uint8, device=device).zero_()
    one = torch.ones(8192 if cuda else 256, 8192 if cuda else 256, device=device, dtype=torch.bfloat16)
    if cuda:
        torch.cuda.synchronize()
        told |= {"current": torch.cuda.current_device(), "reserved": torch.cuda.memory_reserved()}
    print(json.dumps({**told, "after": time.time() - began}), flush=True)
    out, there = torch.empty_like(one), torch.empty(256 << 20 if cuda else 1 << 20, dtype=torch.uint8, device=device)
    here = torch.zeros(there.numel(), dtype=torch.uint8, pin_memory=cuda)
    deadline, products = time.time() + args.seconds, 0
    working = time.time()
    while time.time() < deadline:
        if not args.work:
            time.sleep(0.1)
            continue
        for _ in range(20):
            torch.matmul(one, one, out=out)
        there.copy_(here, non_blocking=True)
        if cuda:
            torch.cuda.synchronize()
        products += 20
    took = time.time() - working
    size = one.shape[0]
    print(json.dumps({"held": held.numel(), "tflops": 2 * size**3 * products / took / 1e12}), flush=True)


if __name__ == "__main__":
    main()
