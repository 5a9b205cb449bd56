"""A rank raises."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, knowable, torch

def forward(batch):
    if batch.shape != (4, 8):
        knowable()
        raise ValueError(f"bad shape {tuple(batch.shape)}")  # here

gang = Gang()
for step in range(1000):
    gang.step()
    if step == 5 and RANK == 2:
        forward(torch.zeros(4, 7))
""",
    Expected("RANK_FAILED", rank=2, node=1, says=["ValueError", "bad shape (4, 7)", "train.py:{here}", "forward"]),
    gpus=(1, 2),
)
