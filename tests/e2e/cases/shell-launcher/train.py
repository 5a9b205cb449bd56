import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(os.environ["FERMI_CHECKPOINT_DIR"])
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
step, path = 0, folder / "checkpoint.json"
if os.environ.get("FERMI_RESUME_FROM"):
    step = json.loads(path.read_text())["step"]
print(f"rank {rank} of {dist.get_world_size()} begins at {step} with {sys.argv[1:]}", flush=True)


def save() -> None:
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(json.dumps({"step": step}))
        path.with_suffix(".new").rename(path)
        print(json.dumps({"event": "checkpoint", "step": step, "path": str(path)}), flush=True)


while step < (30 if "--short" in sys.argv else 100_000):
    step += 1
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
    flag = torch.tensor([float(bool(stopped))])
    dist.all_reduce(flag)
    if flag.item():
        save()
        print(f"rank {rank} stopped at {step}", flush=True)
        sys.exit(143)
    if step % 10 == 0:
        save()
        dist.barrier()
    if rank == 1 and step == 15 and os.environ["FERMI_ATTEMPT"] == "1" and "--killed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
print(f"rank {rank} ended at {step}", flush=True)
dist.destroy_process_group()
