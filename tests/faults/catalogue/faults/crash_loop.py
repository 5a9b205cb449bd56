"""The same failure at the same step, twice: the third attempt is not burnt."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import ATTEMPT, RANK, Gang, knowable

gang = Gang()
for step in range(1000):
    gang.step()
    if step == 12 and RANK == 1:
        if ATTEMPT == 2:
            knowable()
        raise ValueError("label 12 of 10 classes")  # here
""",
    Expected("CRASH_LOOP", rank=1, node=1, says=["label 12 of 10 classes", "train.py:{here}"]),
    request={"maxRestarts": 3},
)
