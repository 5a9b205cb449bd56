"""Waits in an all_reduce of NCCL that stands behind a kernel of many seconds, and says what torch recorded of it."""

import argparse
import json
import pickle
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


def recorded(active: bool) -> None:
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        if hasattr(c10d, name):
            began = time.perf_counter()
            told = getattr(c10d, name)(True, active)
            text = told.decode() if isinstance(told, bytes) else str(told)
            took = (time.perf_counter() - began) * 1e6
            print(json.dumps({"recorder": name, "active": active, "microseconds": took, "raw": text}), flush=True)
    if hasattr(c10d, "_dump_nccl_trace"):
        told = pickle.loads(c10d._dump_nccl_trace(True, True, active))
        print(json.dumps({"recorder": "pickle", "active": active, "raw": repr(told)[:20000]}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    args = parser.parse_args()
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    value = torch.ones(1 << 20, device="cuda")
    for step in range(5):
        dist.all_reduce(value)
        torch.cuda.synchronize()
        print(f"step {step} loss {value.mean().item():.4f}", flush=True)
    recorded(False)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda._sleep(100_000_000)
    end.record()
    torch.cuda.synchronize()
    cycles = int(100_000_000 / begin.elapsed_time(end) * 1000 * args.seconds)
    began = time.time()
    torch.cuda._sleep(cycles)
    dist.all_reduce(value)
    recorded(True)
    print(json.dumps({"waits": time.time()}), flush=True)
    said = value[0].item()  # here
    print(json.dumps({"waited": time.time() - began, "value": said}), flush=True)
    recorded(False)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
