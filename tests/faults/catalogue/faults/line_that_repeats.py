"""A rank tries the same thing for ever and says so in the same words each time; all others wait for it."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import time
from gang import RANK, Gang, knowable

def fetch():
    while True:
        print(time.strftime("%H:%M:%S"), "the server does not answer, next try in a second", flush=True)
        time.sleep(1)  # here

gang = Gang()
for step in range(2000):
    gang.step()
    if step == 60 and RANK == 1:
        knowable()
        fetch()
""",
    Expected("HANG_SUSPECTED", rank=1, node=1, says=["train.py:{here}"]),
    ends=(),
)
