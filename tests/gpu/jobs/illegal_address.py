"""Has a kernel of its own write far outside of its tensor."""

import json
import time

import torch

SOURCE = """
extern "C" __global__ void scatter(float* rows, int far) {
    long long at = (long long)far * 1000003LL * (threadIdx.x + 1);
    rows[at] = 1.0f;
}
"""

torch.cuda.set_device(0)
rows = torch.zeros(1024, device="cuda")
kernel = torch.cuda._compile_kernel(SOURCE, "scatter")
kernel((1, 1, 1), (32, 1, 1), [rows, 0])
torch.cuda.synchronize()
print(json.dumps({"step": 1, "loss": rows[0].item()}), flush=True)
print(json.dumps({"wrong": time.time()}), flush=True)
kernel((1, 1, 1), (32, 1, 1), [rows, 1000003])  # kernel
time.sleep(0.2)
total = rows.sum()
print(total.item(), flush=True)  # later
