"""A rank skips a collective of its subgroup and waits in one of all: its partner waits for it in the subgroup."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, dist, knowable, torch

def reduce_rows(group):
    dist.all_reduce(torch.ones(4, 7), group=group)

gang = Gang()
groups = [dist.new_group(ranks, group_desc="rows") for ranks in ([0, 1], [2, 3])]
for step in range(2000):
    gang.step()
    if step == 60 and RANK == 3:
        knowable()
    else:
        reduce_rows(groups[RANK // 2])
    dist.barrier()  # here
""",
    Expected(
        "COLLECTIVE_MISMATCH|HANG",
        rank=3,
        node=1,
        says=["all_reduce", "rows of ranks 2, 3|ranks 2, 3", "barrier"],
        shows=["rank 3 is missing"],
    ),
    gpus=(2, 2),
)
