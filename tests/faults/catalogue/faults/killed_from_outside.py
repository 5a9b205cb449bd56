"""Somebody kills a rank."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def kill_rank(run: FaultRun) -> None:
    run.reached("training")
    run.kill(1)


FAULT = Fault(
    """
from gang import Gang, reached

gang = Gang()
for step in range(10000):
    gang.step()
    if step == 5:
        reached("training")
""",
    Expected("RANK_KILLED", rank=1, node=1, says=["SIGKILL"]),
    inject=kill_rank,
)
