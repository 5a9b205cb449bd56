"""A worker of a DataLoader is killed."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import os, signal
from torch.utils.data import DataLoader, Dataset
from gang import RANK, Gang, knowable, torch

class Images(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if RANK == 1 and index == 100:
            knowable()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(7)

gang = Gang()
for batch in DataLoader(Images(), batch_size=4, num_workers=1):  # here
    gang.step(batch)
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["DataLoader worker", "killed"]),
)
