"""Prints what variables of the environment change in CUDA, cuBLAS, NCCL and PyTorch's allocator. Words such as
`NAME=value` are set by the script itself, before it imports PyTorch, as many scripts do."""

import json
import os
import sys
import time
from typing import Any

FORKED = "torch" in sys.modules
for word in sys.argv[1:]:
    name, _, value = word.partition("=")
    os.environ[name] = value

import torch  # noqa: E402


def main() -> None:
    told: dict[str, Any] = {"forked": FORKED, "devices": torch.cuda.device_count()}
    told["order"] = os.environ.get("CUDA_DEVICE_ORDER", "")
    if torch.cuda.is_available():
        told.update(read_variables())
    print(json.dumps({"variables": told}), flush=True)


def read_variables() -> dict[str, Any]:
    told: dict[str, Any] = {"uuid": str(torch.cuda.get_device_properties(0).uuid)}
    generator = torch.Generator("cuda").manual_seed(1)
    matrix = torch.randn(1024, 1024, device="cuda", generator=generator)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    product = matrix @ matrix
    torch.cuda.synchronize()
    del product
    told["workspace"] = torch.cuda.memory_allocated() - before
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    began = time.perf_counter()
    torch.cuda._sleep(300_000_000)
    told["launch"] = time.perf_counter() - began
    torch.cuda.synchronize()
    told["kernel"] = time.perf_counter() - began
    torch.set_float32_matmul_precision("high")
    exact = matrix.double() @ matrix.double()
    told["error"] = float(((matrix @ matrix).double() - exact).abs().max() / exact.abs().max())
    told["expandable"] = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    torch.use_deterministic_algorithms(True)
    try:
        matrix @ matrix
        told["deterministic"] = ""
    except RuntimeError as error:
        told["deterministic"] = str(error)[:200]
    torch.use_deterministic_algorithms(False)
    if "RANK" in os.environ:
        import torch.distributed as dist

        dist.init_process_group("nccl")
        dist.all_reduce(matrix)
        torch.cuda.synchronize()
        dist.destroy_process_group()
    return told


if __name__ == "__main__":
    main()
