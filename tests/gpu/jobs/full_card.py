"""Multiplies matrices, for the first time, on a card whose memory others hold to the last MiB: what cuBLAS needs for
itself cannot be had."""

import ctypes
import json
import time

import torch

left, right = torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
with open("/proc/self/maps", encoding="utf-8") as maps:
    path = next(line.split()[-1] for line in maps if "libcudart" in line)
runtime = ctypes.CDLL(path)
size, held = 1 << 34, []
while size >= 1 << 12:
    pointer = ctypes.c_void_p()
    if runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)):
        runtime.cudaGetLastError()
        size >>= 1
    else:
        held.append(size)
print(json.dumps({"held": sum(held), "free": torch.cuda.mem_get_info()[0]}), flush=True)
print(json.dumps({"wrong": time.time()}), flush=True)
print((left @ right).sum().item(), flush=True)  # product
