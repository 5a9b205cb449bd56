"""Saves what all ranks have as torch.distributed.checkpoint does, each rank its share, and resumes from that:
`saver.py <scratch folder> [--load <folder>]`. Knows nothing of the platform. Standard library only."""

import argparse
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("scratch", type=Path)
parser.add_argument("out", type=Path)
parser.add_argument("--load", type=Path)
args = parser.parse_args()
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def wait_for_all(what: str) -> None:
    (args.scratch / f"{what}-{rank}").touch()
    while len(list(args.scratch.glob(f"{what}-*"))) < world_size:
        time.sleep(0.01)


if args.load:
    print("resumed", args.load.name, *sorted(path.name for path in args.load.glob("*.distcp")), flush=True)
    sys.exit()
folder = args.out / "step-20"
folder.mkdir(parents=True, exist_ok=True)
(folder / f"__{rank}_0.distcp").write_bytes(b"share of rank %d" % rank)
wait_for_all("saved")
if rank == 0:
    (folder / ".metadata.tmp").write_bytes(b" ".join(b"__%d_0.distcp" % one for one in range(world_size)))
    (folder / ".metadata.tmp").rename(folder / ".metadata")
wait_for_all("completed")
