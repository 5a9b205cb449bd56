"""A rank in a pod raises: the answer is the one of every engine."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import time
from knowable import RANK, knowable

time.sleep(1)
if RANK == 1:
    knowable()
    raise KeyError("attention_mask")  # here
time.sleep(600)
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["KeyError", "attention_mask", "train.py:{here}"]),
    environments=lambda run: run.fault_lab.on_kubernetes(run),
)
