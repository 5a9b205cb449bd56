"""Rank 0 looks every five seconds whether a file has come; all others wait for it at a barrier."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
from gang import RANK, Gang, dist

gang = Gang()
for step in range(1, 101):
    gang.step()
    if step == 60:
        if RANK == 0:
            for _ in range(16):
                time.sleep(5)
        dist.barrier()
""",
    times=2,
)
