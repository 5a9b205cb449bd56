"""Rank 0 saves to slow storage; all others wait for it."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import io, subprocess, sys
from gang import RANK, Gang, dist, torch

SLOW = "import sys, time\\nwhile sys.stdin.buffer.read(1 << 18): time.sleep(0.25)"
gang = Gang()
for step in range(1, 121):
    gang.step()
    if step == 60:
        if RANK == 0:
            written = io.BytesIO()
            torch.save({"weights": torch.zeros(3 << 20)}, written)
            storage = subprocess.Popen([sys.executable, "-c", SLOW], stdin=subprocess.PIPE)
            storage.stdin.write(written.getvalue())
            storage.stdin.close()
            storage.wait()
        dist.barrier()
""",
    times=6,
)
