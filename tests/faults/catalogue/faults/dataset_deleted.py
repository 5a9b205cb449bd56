"""Somebody deletes the data while it is read."""

import shutil

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def delete_dataset(run: FaultRun) -> None:
    run.reached("training")
    shutil.rmtree(run.folder / "shards")
    run.stamp()


FAULT = Fault(
    """
import os
from gang import RANK, Gang, reached, torch

def load_shard(number):
    with open(os.path.join(os.path.dirname(__file__), "shards", f"{number % 2}.bin"), "rb") as file:  # here
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).float().view(4, 7)

gang = Gang()
for step in range(10000):
    gang.step(load_shard(step))
    if step == 10:
        reached("training")
""",
    Expected("RANK_FAILED", says=["FileNotFoundError|no such file|not there", "shards/", "train.py:{here}"]),
    files={"shards/0.bin": "a" * 28, "shards/1.bin": "b" * 28},
    inject=delete_dataset,
)
