"""A curriculum: steps grow slowly to a multiple of what they were."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import Gang

gang = Gang(pace=0.03)
for step in range(160):
    gang.step()
    gang.pace += 0.001
""",
    times=4,
)
