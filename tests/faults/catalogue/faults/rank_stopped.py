"""Somebody stops a rank (kill -STOP), and forgets it."""

import signal

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def stop_rank(run: FaultRun) -> None:
    run.reached("training")
    run.kill(1, signal.SIGSTOP)


FAULT = Fault(
    """
from gang import Gang, RANK, reached

gang = Gang()
for step in range(20000):
    gang.step()
    if step == 60 and RANK == 0:
        reached("training")
""",
    Expected("RANK_STOPPED", rank=1, node=1, says=["SIGSTOP", "kill -CONT"]),
    inject=stop_rank,
    ends=(),
)
