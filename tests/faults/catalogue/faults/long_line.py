"""A line of a hundred megabytes, then a failure."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import sys
from knowable import RANK, knowable, when

if RANK == 1:
    for _ in range(100):
        sys.stdout.write("0123456789abcdef" * 65536)
    sys.stdout.write("\\n")
    sys.stdout.flush()
    knowable()
    raise ValueError("the tensor above is not what was expected")  # here
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["ValueError", "the tensor above is not", "train.py:{here}"]),
)
