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
    Expected("RANK_FAILED", says=["1 had ended|rank 1|ranks 1|1 ended"], node=0),
)
