"""The loss is not a number any more."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import json, math
from gang import RANK, Gang, knowable

gang = Gang()
for step in range(1, 5000):
    gang.step()
    if RANK == 0:
        loss = 2.0 + 1 / step if step < 40 else math.nan
        if step == 40:
            knowable()
        print(json.dumps({"step": step, "loss": loss}), flush=True)
""",
    Expected("LOSS_NOT_FINITE", says=["40"]),
    ends=(),
)
