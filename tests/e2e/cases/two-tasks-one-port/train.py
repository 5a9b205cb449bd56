import os
import time

import torch.distributed as dist

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="23456")
dist.init_process_group("gloo")
for step in range(40):
    dist.barrier()
    print("iter", step, flush=True)
    time.sleep(0.5)
