"""Rank 0 evaluates alone and says nothing; all others wait for it at a barrier."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import RANK, Gang, compute, dist, torch

gang = Gang()
for step in range(1, 161):
    gang.step()
    if step % 80 == 0:
        if RANK == 0:
            gang.model.eval()
            with torch.no_grad():
                compute(12)
            gang.model.train()
        dist.barrier()
""",
    gpus=(2, 1),
    times=8,
)
