"""The shared memory is too small for a DataLoader's workers."""

from tests.faults.catalogue.fault import Expected, Fault
from tests.faults.catalogue.faults.loader_worker_killed import FAULT as ALIKE

FAULT = Fault(
    ALIKE.script.replace("SIGKILL", "SIGBUS"),
    Expected("RANK_FAILED", rank=1, node=1, says=["shared memory", "/dev/shm|num_workers|shm"]),
)
