"""PyTorch's own save waits for its storage without a sign of life."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import io, time
from gang import RANK, Gang, dist, torch

class Storage(io.BytesIO):
    waited = False

    def write(self, data):
        if not self.waited:
            self.waited = True
            time.sleep(13)
        return super().write(data)

gang = Gang()
for step in range(1, 121):
    gang.step()
    if step == 60:
        if RANK == 0:
            torch.save({"weights": torch.zeros(1 << 16)}, Storage())
        dist.barrier()
""",
    times=5,
)
