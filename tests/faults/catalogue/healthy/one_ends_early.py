"""Rank 1 has nothing left to do; rank 0 still writes what came of it."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
from gang import RANK, Gang, dist, torch

gang = Gang()
for step in range(80):
    gang.step()
dist.destroy_process_group()
if RANK == 0:
    for part in range(100):
        gang.model.module(gang.batch())
        time.sleep(0.13)
    print("exported", flush=True)
""",
    times=4,
)
