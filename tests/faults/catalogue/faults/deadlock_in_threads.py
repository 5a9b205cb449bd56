"""Two threads of a rank wait for each other's lock."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import threading, time
from gang import RANK, Gang, knowable

cache, index = threading.Lock(), threading.Lock()

def refresh():
    with index:
        time.sleep(0.5)
        with cache:
            pass

def look_up():
    with cache:
        time.sleep(0.5)
        knowable()
        with index:  # here
            pass

gang = Gang()
for step in range(2000):
    gang.step()
    if step == 60 and RANK == 1:
        threading.Thread(target=refresh).start()
        look_up()
""",
    Expected("HANG", rank=1, node=1, says=["look_up", "train.py:{here}"], shows=["refresh"]),
)
