"""A rank compiles for long before its first step, and its peers wait for it."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
from gang import RANK, Gang

gang = Gang()
if RANK == 0:
    source, until = "x = [" + "a * b + c, " * 2000 + "]", time.time() + 11
    while time.time() < until:
        compile(source, "kernel", "exec")
        time.sleep(0.2)
for step in range(60):
    gang.step()
""",
    times=4,
)
