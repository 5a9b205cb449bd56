"""A model has parameters that its loss does not depend on (DDP's own check)."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import Gang, knowable, nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.auxiliary = nn.Linear(7, 7), nn.Linear(7, 7)

    def forward(self, batch):
        return self.used(batch)

gang = Gang(model=Model())
gang.step()
knowable()
gang.step()  # here
""",
    Expected("RANK_FAILED", says=["find_unused_parameters", "train.py:{here}|gang.py"]),
)
