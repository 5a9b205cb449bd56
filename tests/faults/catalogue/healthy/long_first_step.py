"""The first step takes two hundred times as long as any other."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
from gang import Gang

gang = Gang()
gang.pace = 14.0
gang.step()
gang.pace = 0.07
for step in range(100):
    gang.step()
""",
    times=5,
)
