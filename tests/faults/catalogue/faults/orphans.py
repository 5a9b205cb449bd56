"""A rank fails and leaves a process behind, which holds the GPU: it is named, and nothing of it is left."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.process_state import alive


def observe_orphan(run: FaultRun) -> None:
    run.reached("orphan")
    pid = int((run.stamps / "pid").read_text())
    run.go("fail")
    run.platform.until_final(run.task_id)
    assert not alive(pid), "the process that was left behind lives"


FAULT = Fault(
    """
import os, subprocess, sys
from knowable import FILE, RANK, knowable, reached, when

if RANK == 1:
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open(os.path.join(os.path.dirname(FILE), "pid"), "w") as file:
        file.write(str(left.pid))
    reached("orphan")
    when("fail")
    knowable()
    raise SystemExit("bad configuration: hidden size 100 is no multiple of 8 heads")  # here
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["bad configuration: hidden size 100"]),
    inject=observe_orphan,
)
