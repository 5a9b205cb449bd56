"""A worker of a DataLoader raises: the line that matters is the dataset's, in another process."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from torch.utils.data import DataLoader, Dataset
from gang import RANK, Gang, knowable, torch

class Images(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if RANK == 1 and index == 100:
            knowable()
            raise ValueError(f"image {index} has 3 channels, not 4")  # here
        return torch.randn(7)

gang = Gang()
for batch in DataLoader(Images(), batch_size=4, num_workers=1):
    gang.step(batch)
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["ValueError", "image 100 has 3 channels", "train.py:{here}"]),
)
