"""One rank's data does not come; all others wait for it."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import threading
from gang import RANK, Gang, knowable

def load_batch(gang, step):
    if step == 60 and RANK == 2:
        knowable()
        threading.Event().wait()  # here
    return gang.batch()

gang = Gang()
for step in range(2000):
    gang.step(load_batch(gang, step))
""",
    Expected("HANG", rank=2, node=1, says=["load_batch", "train.py:{here}"], shows=["all_reduce|backward"]),
    gpus=(2, 2),
)
