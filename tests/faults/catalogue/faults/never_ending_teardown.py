"""All others have ended well; one does not come out of its end. The work is done, so the task succeeds."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import threading
from gang import RANK, Gang, dist, knowable

gang = Gang()
for step in range(40):
    gang.step()
if RANK == 0:
    gang.save(40)
dist.barrier()
if RANK == 1:
    knowable()
    threading.Event().wait()  # here
dist.destroy_process_group()
""",
    Expected("RANKS_LEFT_BEHIND|COMPLETED_AND_KILLED", rank=1, node=1, says=["ended"]),
    ends=("succeeded",),
)
