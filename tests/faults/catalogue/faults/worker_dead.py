"""The platform's worker, which would find the answer, is killed together with a rank."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.broker_dead import FAULT as ALIKE


def kill_worker(run: FaultRun) -> None:
    run.reached("training")
    run.platform.kill("worker", "watch")
    run.kill(0)


FAULT = Fault(
    ALIKE.script,
    Expected("RANK_KILLED", rank=0, node=0, says=["SIGKILL"]),
    inject=kill_worker,
    alone=True,
)
