"""A rank ends well in the middle: `sys.exit(0)` where its data ran out."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import os, sys
from gang import RANK, Gang, knowable

gang = Gang()
for step in range(2000):
    if step == 30 and RANK == 1:
        knowable()
        sys.exit(0)  # here
    gang.step()
""",
    Expected("RANK_LEFT_EARLY", rank=1, node=1, says=["at step 30", "1 rank was still running"]),
)
