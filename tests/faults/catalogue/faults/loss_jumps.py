"""The loss jumps and stays up: stopped, as the task asks for."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import json, random
from gang import RANK, Gang, knowable

gang = Gang()
random.seed(0)
for step in range(1, 5000):
    gang.step()
    if RANK == 0:
        loss = 2.0 + random.random() / 20 if step < 100 else 25.0
        if step == 100:
            knowable()
        print(json.dumps({"step": step, "loss": loss}), flush=True)
""",
    Expected("LOSS_JUMPED|BAD_LOSS", says=["25"]),
    request={"onBadLoss": "stop"},
)
