"""Half a million lines, then a failure."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from knowable import RANK, knowable, when

for line in range(500_000):
    print(f"WARNING rank {RANK}: sample {line} is shorter than the context, padding it with zeros")
if RANK == 0:
    knowable()
    raise RuntimeError("too many short samples")  # here
when("never")
""",
    Expected("RANK_FAILED", rank=0, node=0, says=["RuntimeError", "too many short samples", "train.py:{here}"]),
)
