"""A read from storage never comes back, as from a dead NFS server."""

import os

from tests.faults.catalogue.fault import Expected, Fault, Scene


def make_pipe(scene: Scene) -> None:
    os.mkfifo(scene.folder / "shard-60")
    (scene.folder / "shard-60").chmod(0o666)
    descriptor = os.open(scene.folder / "shard-60", os.O_RDWR)
    scene.after.callback(os.close, descriptor)
    scene.go("mounted")


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
