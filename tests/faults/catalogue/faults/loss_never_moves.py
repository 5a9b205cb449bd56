"""The optimizer steps and the loss stays where it began: its graph is detached, so nothing is learnt."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import json
from gang import RANK, Gang, knowable

gang = Gang(pace=0.02)
for step in range(1, 5000):
    gang.step()
    if RANK == 0:
        if step == 100:
            knowable()
        print(json.dumps({"step": step, "loss": 2.302585}), flush=True)
""",
    Expected("LOSS_STUCK", says=["2.303", "100 points"]),
    ends=(),
)
