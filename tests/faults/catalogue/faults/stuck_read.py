"""A read from storage never comes back, as from a dead NFS server."""

import os

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def make_pipe(run: FaultRun) -> None:
    os.mkfifo(run.folder / "shard-60")
    (run.folder / "shard-60").chmod(0o666)
    descriptor = os.open(run.folder / "shard-60", os.O_RDWR)
    run.after.callback(os.close, descriptor)
    run.go("mounted")


FAULT = Fault(
    """
import os
from gang import RANK, Gang, knowable, when

def read_shard(path):
    with open(path, "rb") as file:
        knowable()
        return file.read()  # here

when("mounted")
gang = Gang()
for step in range(2000):
    if step == 60 and RANK == 0:
        read_shard(os.path.join(os.path.dirname(__file__), "shard-60"))
    gang.step()
""",
    Expected("HANG", rank=0, node=0, says=["read_shard", "train.py:{here}"]),
    inject=make_pipe,
    ends=(),  # it is likely, and nobody can prove it
)
