"""Has a kernel of its own use memory far outside of its tensor."""

import json
import time

import torch

SOURCE = """
extern "C" __global__ void scatter(float* rows, int far) {
    long long at = (long long)far * 1000003LL * (threadIdx.x + 1);
    rows[at] = 1.0f;
}
"""
OF_EACH = "template <typename T> T scatter(T x, T far) { return far > 0 ? *((volatile T*)(1ull << 46)) : x + 1; }"

torch.cuda.set_device(0)
rows = torch.zeros(1024, device="cuda")
try:
    kernel, raw = torch.cuda._compile_kernel(SOURCE, "scatter"), True
except Exception as error:
    print("no kernel by NVRTC:", repr(error), flush=True)
    kernel, raw = torch.cuda.jiterator._create_jit_fn(OF_EACH, far=0.0), False
block, far = ((1, 1, 1), (32, 1, 1)), 1000003
print(kernel(*block, [rows, 0]) if raw else kernel(rows), flush=True)
torch.cuda.synchronize()
print(json.dumps({"step": 1, "loss": rows[0].item()}), flush=True)
print(json.dumps({"wrong": time.time()}), flush=True)
_ = kernel(*block, [rows, far]) if raw else kernel(rows, far=1.0)  # kernel
time.sleep(0.2)
print(rows.sum().item(), flush=True)  # later
