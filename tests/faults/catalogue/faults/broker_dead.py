"""The platform's broker is killed, and with it a rank: what correctness never waits for, an answer does not either."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def kill_broker(run: FaultRun) -> None:
    run.reached("training")
    run.platform.kill("broker")
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
    inject=kill_broker,
    alone=True,
)
