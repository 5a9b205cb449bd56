"""A task that wants no probe: its runner sees processes and lines alone."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import RANK, Gang, compute, dist

gang = Gang()
for step in range(1, 81):
    gang.step()
    print(f"step {step}", flush=True)
if RANK == 0:
    compute(12)
dist.barrier()
gang.step()
""",
    request={"pulse": "off"},
    times=4,
)
