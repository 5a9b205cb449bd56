"""A rank opens more files than it may."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import resource
from knowable import RANK, knowable, when

if RANK == 1:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    knowable()
    shards = [open(__file__) for _ in range(100)]  # here
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["too many open files", "train.py:{here}"]),
)
