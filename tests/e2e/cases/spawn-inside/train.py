import torch.distributed as dist
import torch.multiprocessing as mp


def work(local, count):
    dist.init_process_group("gloo", rank=local, world_size=count)


if __name__ == "__main__":
    mp.spawn(work, nprocs=2, args=(2,))
