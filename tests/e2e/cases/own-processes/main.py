import argparse
import os

import torch.distributed as dist
import torch.multiprocessing as mp

parser = argparse.ArgumentParser()
parser.add_argument("--world-size", type=int, help="how many nodes")
parser.add_argument("--rank", type=int, help="the number of this node")
parser.add_argument("--dist-url")
parser.add_argument("--multiprocessing-distributed", action="store_true")
args = parser.parse_args()


def train(number, count):
    rank, world_size = args.rank * count + number, args.world_size * count
    dist.init_process_group("gloo", init_method=args.dist_url, world_size=world_size, rank=rank)
    print("joined", rank, world_size, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(os.environ["NPROC_PER_NODE"])
    mp.spawn(train, nprocs=count, args=(count,))
