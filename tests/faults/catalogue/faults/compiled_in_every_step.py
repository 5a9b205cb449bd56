"""A compiled model reads a text that changes with every step: it is compiled anew until the compiler gives up."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import Gang, knowable, nn, torch

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.label = nn.Linear(7, 7), ""

    def forward(self, batch):  # here
        return self.layer(batch) if self.label != "none" else batch

inner = Model()
gang = Gang(pace=0.3, model=inner)
model = torch.compile(gang.model.module, backend="eager")
for step in range(5000):
    inner.label = f"step {step}"
    model(gang.batch())
    gang.step()
    if step == 8:
        knowable()
""",
    Expected("RECOMPILES", says=["6 of 6 steps", "gave up on", "train.py:{here} in forward"]),
    ends=(),
)
