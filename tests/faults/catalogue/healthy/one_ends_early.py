"""Rank 1 has nothing left to do; rank 0 still writes what came of it."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import RANK, Gang, compute, dist

gang = Gang()
for step in range(80):
    gang.step()
dist.destroy_process_group()
if RANK == 0:
    compute(13)
    print("exported", flush=True)
""",
    times=4,
)
