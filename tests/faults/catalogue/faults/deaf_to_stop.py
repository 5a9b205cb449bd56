"""A stop is asked for; the script does not care, and is killed when its grace is over."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def request_stop(run: FaultRun) -> None:
    run.reached("training")
    run.platform.api.post(f"/training-tasks/{run.task_id}/stop").raise_for_status()
    run.stamp()


FAULT = Fault(
    """
import signal, time
from knowable import reached

signal.signal(signal.SIGTERM, signal.SIG_IGN)
reached("training")
while True:
    time.sleep(1)
""",
    Expected("STOPPED_AND_KILLED", says=["killed"]),
    request={"graceSeconds": 2},
    inject=request_stop,
    ends=("stopped",),
)
