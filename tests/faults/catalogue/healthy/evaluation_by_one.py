"""Rank 0 evaluates alone and says nothing; all others wait for it at a barrier."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
from gang import RANK, Gang, dist, torch

gang = Gang()
for step in range(1, 161):
    gang.step()
    if step % 80 == 0:
        if RANK == 0:
            gang.model.eval()
            with torch.no_grad():
                for _ in range(120):
                    gang.model.module(gang.batch())
                    time.sleep(0.1)
            gang.model.train()
        dist.barrier()
""",
    gpus=(2, 1),
    times=8,
)
