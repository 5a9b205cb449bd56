"""One rank takes another one for the source of a broadcast."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, dist, knowable, torch

gang = Gang()
for step in range(60):
    gang.step()
weights = torch.ones(64 << 20)
if RANK == 3:
    knowable()
dist.broadcast(weights, src=3 if RANK == 3 else 0)  # here
dist.barrier()
""",
    Expected("COLLECTIVE_MISMATCH", says=["root 3", "root 0"]),
    gpus=(2, 2),
)
