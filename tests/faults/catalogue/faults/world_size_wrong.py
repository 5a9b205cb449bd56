"""One rank counts the ranks wrongly: something that it imports has set WORLD_SIZE."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import os
from knowable import RANK, knowable

if RANK == 2:
    os.environ["WORLD_SIZE"] = "5"  # here
    knowable()
from gang import Gang

gang = Gang()
for step in range(1000):
    gang.step()
""",
    Expected("WORLD_SIZE_DIFFERS", rank=2, node=1, says=["WORLD_SIZE 5", "the plan has 4"]),
    gpus=(2, 2),
    ends=(),
)
