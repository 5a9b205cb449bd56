"""A rank may have no more memory, and is told so."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import resource
from knowable import RANK, knowable, when

def load_embeddings():
    return bytearray(64 << 30)  # here

if RANK == 1:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    knowable()
    load_embeddings()
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["MemoryError", "memory", "train.py:{here}"]),
)
