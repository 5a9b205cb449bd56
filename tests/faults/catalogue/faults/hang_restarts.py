"""A certain hang costs seconds: the task goes on from its newest checkpoint by itself."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import threading
from gang import ATTEMPT, RANK, Gang, knowable

gang = Gang()
for step in range(1, 61):
    gang.step()
    if step == 30 and RANK == 0:
        gang.save(step)
    if step == 50 and RANK == 1 and ATTEMPT == 1:
        knowable()
        threading.Event().wait()  # here
""",
    Expected("HANG", rank=1, node=1, says=["train.py:{here}"]),
    request={"maxRestarts": 1, "onHang": "restart"},
    ends=("succeeded",),
)
