"""The thread that reads ahead dies; the loop waits for it, and its process goes on living."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import queue, threading
from gang import RANK, Gang, knowable

batches = queue.Queue(maxsize=2)

def read_ahead(gang):
    number = 0
    while True:
        if RANK == 1 and number == 80:
            knowable()
            raise OSError("shard 80 is torn")  # there
        batches.put(gang.batch())
        number += 1

def next_batch():
    return batches.get()  # here

gang = Gang()
threading.Thread(target=read_ahead, args=(gang,), daemon=True).start()
for step in range(2000):
    gang.step(next_batch())
""",
    Expected("HANG", rank=1, node=1, says=["train.py:{here}"], shows=["shard 80 is torn"]),
)
