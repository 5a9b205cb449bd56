"""One rank writes much into a log of its own in every step."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import os, time
from gang import RANK, Gang, knowable

def keep(rows):
    with open(os.devnull, "wb", buffering=0) as file:
        until = time.time() + 0.6
        while time.time() < until:
            file.write(rows)  # here
            time.sleep(0.05)

gang, rows = Gang(pace=0.1), bytes(8 << 20)
for step in range(5000):
    if step > 40 and RANK == 1:
        knowable()
        keep(rows)
    gang.step()
""",
    Expected("STRAGGLER", rank=1, node=0, says=["in keep", "It writes"]),
    gpus=(2, 2),
    ends=(),
)
