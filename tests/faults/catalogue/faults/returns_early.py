"""A rank has less data: it leaves the loop, and waits at the end for those that are still in it."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, dist, knowable

gang = Gang()
for step in range(60 if RANK == 1 else 63):
    gang.step()
knowable()
dist.barrier()  # here
gang.step()
dist.destroy_process_group()
""",
    Expected("COLLECTIVE_MISMATCH|HANG", rank=1, node=1, says=["barrier"]),
)
