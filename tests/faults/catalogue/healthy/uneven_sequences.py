"""Whoever has the longest sequence is last, another rank at each step."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import random, time
from gang import RANK, Gang

gang = Gang(pace=0.02)
random.seed(RANK)
for step in range(200):
    time.sleep(random.choice([0.02, 0.04, 0.12]))
    gang.step()
""",
    gpus=(2, 2),
    times=4,
)
