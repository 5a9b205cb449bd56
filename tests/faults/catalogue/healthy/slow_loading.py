"""One rank's batch comes from a thread that waits for a slow server; the loop waits for the thread without a limit."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import queue, threading, time
from gang import RANK, Gang

batches = queue.Queue(maxsize=2)

def read_ahead(gang):
    for number in range(100):
        if number == 60 and RANK == 1:
            time.sleep(75)
        batches.put(gang.batch())

gang = Gang()
threading.Thread(target=read_ahead, args=(gang,), daemon=True).start()
for step in range(100):
    gang.step(batches.get())
""",
    times=2,
)
