"""The disk of the checkpoints is full."""

import subprocess

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def mount_small_disk(run: FaultRun) -> None:
    small = run.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(small)], check=True)
    run.after.callback(subprocess.run, ["umount", "--lazy", str(small)])
    run.go("mounted")


def find_obstacle() -> str:
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return "" if done.returncode == 0 else "nothing can be mounted here"


FAULT = Fault(
    """
import os
from gang import RANK, Gang, knowable, torch, when

when("mounted")
gang = Gang()
for step in range(1000):
    gang.step()
    if step == 5 and RANK == 0:
        knowable()
        torch.save(torch.zeros(1 << 20), os.path.join(os.path.dirname(__file__), "small", "model.pt"))  # here
""",
    Expected("RANK_FAILED|DISK_FULL", rank=0, node=0, says=["full|no space", "train.py:{here}|small"], shows=["small"]),
    inject=mount_small_disk,
    needs=find_obstacle,
)
