"""One rank calls two collectives the other way round."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, dist, knowable, torch

gang = Gang()
for step in range(2000):
    gang.step()
    if step == 60:
        knowable()
        calls = [lambda: dist.broadcast(torch.ones(5), 0), lambda: dist.all_reduce(torch.ones(9))]
        for call in reversed(calls) if RANK == 2 else calls:
            call()  # here
""",
    Expected("COLLECTIVE_MISMATCH|RANK_FAILED|RANK_KILLED", rank=2, node=1, says=["broadcast", "all_reduce"]),
    gpus=(2, 1),
)
