"""A script hangs at the same line whenever it comes there: it is not tried a third time."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import threading
from gang import RANK, Gang, knowable

gang = Gang()
for step in range(1, 61):
    gang.step()
    if step == 30 and RANK == 1:
        knowable()
        threading.Event().wait()  # here
""",
    Expected("HANG|HANG_LOOP", rank=1, node=1, says=["train.py:{here}"]),
    request={"maxRestarts": 3},
)
