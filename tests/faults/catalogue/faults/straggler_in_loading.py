"""One rank's data comes slowly from one moment on."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import time
from gang import RANK, Gang, knowable

gang = Gang(pace=0.1)
for step in range(5000):
    if step > 80 and RANK == 3:
        knowable()
        time.sleep(0.4)  # here
    gang.step()
""",
    Expected("STRAGGLER", rank=3, node=1),
    gpus=(2, 2),
    ends=(),
)
