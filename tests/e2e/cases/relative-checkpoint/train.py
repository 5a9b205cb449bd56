import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path, start = "out/last.pt", 0
if os.path.exists(path):
    start = torch.load(path)["step"]
    print("resumed from step", start, flush=True)
for step in range(start, 40):
    dist.barrier()
    if dist.get_rank() == 0 and step % 10 == 0:
        os.makedirs("out", exist_ok=True)
        torch.save({"step": step}, path)
    if step == 35 and dist.get_rank() == 1 and os.environ["FERMI_ATTEMPT"] == "1":
        raise ValueError("bad sample")
