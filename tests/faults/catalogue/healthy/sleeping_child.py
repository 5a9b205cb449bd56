"""Rank 0 waits for a program of its own that leads a session of its own and sleeps most of the time."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import subprocess, sys
from gang import RANK, Gang, dist

TOOL = "import time\\nfor _ in range(16): time.sleep(5)"
gang = Gang()
for step in range(1, 101):
    gang.step()
    if step == 60:
        if RANK == 0:
            subprocess.run([sys.executable, "-c", TOOL], check=True, start_new_session=True)
        dist.barrier()
""",
    times=2,
)
