"""Each step takes longer than what is patience elsewhere."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import Gang

gang = Gang(pace=9.0)
for step in range(5):
    gang.step()
""",
    times=4,
)
