"""A rank on Slurm raises: the answer is the one of every engine."""

from tests import slurm
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
    environments=lambda run: run.fault_lab.on_slurm(run),
    needs=slurm.why_not,
)
