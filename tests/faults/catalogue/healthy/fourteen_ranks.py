"""The documents' three environments on this machine: far more ranks than processors."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
from gang import Gang, torch

gang, work, until = Gang(pace=0.0), torch.randn(120, 120), time.time() + 14
while True:
    work = torch.tanh(work @ work)
    over = torch.tensor([float(time.time() > until)])
    torch.distributed.all_reduce(over)
    if over:
        break
    gang.step()
""",
    gpus=(2, 4, 8),
    times=4,
)
