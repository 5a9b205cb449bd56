"""An exception raised from another: either names the rank's own line, and both have to be there to be read."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from knowable import RANK, knowable, when

def read(record):
    return record["label"]  # there

def load(number):
    try:
        return read({})
    except KeyError as error:
        raise RuntimeError(f"shard {number} cannot be used") from error  # here

if RANK == 1:
    knowable()
    load(17)
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["train.py:{here}|train.py:{there}"],
             shows=["KeyError: 'label'", "RuntimeError: shard 17 cannot be used"]),
)  # fmt: skip
