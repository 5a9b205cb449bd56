"""Rank 0 has another program do its work for a while; all others wait."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import subprocess, sys
from gang import RANK, Gang, dist

TOOL = '''
import hashlib, time
for _ in range(120):
    hashlib.sha256(bytes(100000)).digest()
    time.sleep(0.1)
'''
gang = Gang()
for step in range(1, 101):
    gang.step()
    if step == 60:
        if RANK == 0:
            subprocess.run([sys.executable, "-c", TOOL], check=True)
        dist.barrier()
""",
    times=5,
)
