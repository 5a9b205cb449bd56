"""The checkpoint's weights have other shapes than the model's."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, knowable, nn

gang = Gang()
for step in range(3):
    gang.step()
if RANK == 1:
    knowable()
    gang.model.module.load_state_dict(nn.Linear(7, 9).state_dict())  # here
for step in range(1000):
    gang.step()
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["size mismatch", "train.py:{here}"], shows=["[9, 7]"]),
)
