import time

import torch.distributed as dist
import torch.multiprocessing as mp


def work(local, count):
    dist.init_process_group("gloo", rank=local, world_size=count)
    for _ in range(100):  # a training, during which its port is in use
        time.sleep(0.1)


if __name__ == "__main__":
    mp.spawn(work, nprocs=2, args=(2,))
