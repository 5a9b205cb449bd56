"""One rank fails quietly; all others then complain loudly about the connection to it."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import sys
from gang import RANK, Gang, knowable

gang = Gang()
for step in range(1000):
    try:
        if step == 6 and RANK == 2:
            knowable()
            raise ZeroDivisionError("no sample left in shard 2")  # here
        gang.step()
    except RuntimeError as error:
        for _ in range(400):
            print(f"FATAL: rank {RANK} lost its peers: {error}", file=sys.stderr)
        raise
""",
    Expected("RANK_FAILED", rank=2, node=1, says=["ZeroDivisionError", "no sample left in shard 2", "train.py:{here}"]),
    gpus=(2, 2),
)
