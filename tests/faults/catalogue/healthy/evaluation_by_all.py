"""All ranks evaluate, longer than any step has taken."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
from gang import Gang, dist, torch

gang = Gang()
for step in range(1, 161):
    gang.step()
    if step % 80 == 0:
        total = torch.zeros(1)
        with torch.no_grad():
            for _ in range(100):
                total += gang.model.module(gang.batch()).sum()
                time.sleep(0.1)
        dist.all_reduce(total)
""",
    times=6,
)
