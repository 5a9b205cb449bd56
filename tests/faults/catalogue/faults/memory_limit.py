"""The kernel kills a rank that needs more memory than its container may have."""

from tests.faults.catalogue import cgroups
from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def limit_memory(run: FaultRun) -> None:
    run.reached("training")
    run.fault_lab.group(run, memory=str(400 << 20)).add(run.pid(1))
    run.go("limited")


FAULT = Fault(
    """
from gang import RANK, Gang, knowable, reached, when

gang, kept = Gang(), []
for step in range(10000):
    gang.step()
    if step == 5:
        reached("training")
        when("limited")
        if RANK == 1:
            knowable()
            while True:
                kept.append(bytearray(32 << 20))  # here
""",
    Expected("RANK_KILLED|OUT_OF_MEMORY|HOST_OUT_OF_MEMORY", rank=1, node=1, says=["memory", "400 MiB|419"]),
    inject=limit_memory,
    needs=cgroups.find_obstacle,
)
