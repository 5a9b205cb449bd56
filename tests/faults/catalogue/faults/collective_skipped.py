"""One rank leaves a collective out and goes on to the next one, another kind."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, dist, knowable, torch

gang = Gang()
for step in range(2000):
    gang.step()
    if step == 60:
        if RANK == 1:
            knowable()
        else:
            dist.all_reduce(torch.ones(7))  # here
        gathered = [torch.zeros(3) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, torch.ones(3))
""",
    Expected("COLLECTIVE_MISMATCH", rank=1, node=0, says=["all_reduce", "all_?gather|allgather|all_gather"]),
    gpus=(2, 1),
)
