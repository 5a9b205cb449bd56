"""All ranks evaluate, longer than any step has taken."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import Gang, compute, dist, torch

gang = Gang()
for step in range(1, 161):
    gang.step()
    if step % 80 == 0:
        total = torch.zeros(1)
        compute(12)
        dist.all_reduce(total)
""",
    times=6,
)
