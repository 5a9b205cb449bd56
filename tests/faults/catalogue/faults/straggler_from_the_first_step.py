"""One rank loads its data slowly from the first step on: it has no better past of its own to compare with."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import time
from gang import RANK, Gang, knowable

def load_batch(gang):
    if RANK == 2:
        time.sleep(0.9)  # here
    return gang.batch()

gang = Gang(pace=0.1)
for step in range(5000):
    knowable()
    gang.step(load_batch(gang))
""",
    Expected("STRAGGLER", rank=2, node=1, says=["train.py:{here} in load_batch", "loads data"]),
    gpus=(2, 2),
    ends=(),
)
