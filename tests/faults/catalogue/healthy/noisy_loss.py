"""A loss as small batches have it: noise, a warm-up, a drop where the learning rate falls."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import json, math, random
from gang import RANK, Gang

gang = Gang(pace=0.04)
random.seed(3)
for step in range(1, 301):
    gang.step()
    if RANK == 0:
        calm = 1.5 + 8 * math.exp(-step / 40) + (0.5 if step < 200 else 0.0)
        print(json.dumps({"step": step, "loss": calm * math.exp(random.gauss(0, 0.12))}), flush=True)
""",
    times=4,
)
