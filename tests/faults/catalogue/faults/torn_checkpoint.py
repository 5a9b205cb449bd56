"""The checkpoint to go on from was not written to its end."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import os
from gang import RANK, Gang, dist, knowable, torch

path = os.path.join(os.path.dirname(__file__), "stamps", "model.pt")
gang = Gang()
if RANK == 0:
    torch.save({"weights": torch.zeros(9999)}, path)
    os.truncate(path, 20000)
dist.barrier()
knowable()
torch.load(path)  # here
""",
    Expected("RANK_FAILED", says=["train.py:{here}", "checkpoint", "torn|truncated|incomplete|damaged|not whole"]),
)
