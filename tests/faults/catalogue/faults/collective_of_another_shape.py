"""One rank brings a tensor of another shape."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, dist, knowable, torch

gang = Gang()
for step in range(2000):
    gang.step()
    if step == 60:
        knowable()
        dist.all_reduce(torch.ones(4, 8 if RANK == 2 else 7))  # here
        dist.barrier()
""",
    Expected("COLLECTIVE_MISMATCH|RANK_FAILED|RANK_KILLED", rank=2, node=1, says=["all_reduce|collective"],
             shows=["4, 8|[4,8]|32", "4, 7|[4,7]|28"]),
    gpus=(2, 1),
)  # fmt: skip
