"""A hang on Slurm: the answer is the one of every engine."""

from tests import slurm
from tests.faults.catalogue.fault import Expected, Fault
from tests.faults.catalogue.faults.hang_in_loading import FAULT as ALIKE

FAULT = Fault(
    ALIKE.script.replace("RANK == 2", "RANK == 1"),
    Expected("HANG", rank=1, node=1, says=["load_batch", "train.py:{here}"]),
    environments=lambda run: run.fault_lab.on_slurm(run),
    needs=slurm.why_not,
)
