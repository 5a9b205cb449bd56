"""Long steps, and not a line printed."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import Gang

gang = Gang(pace=3.0)
for step in range(8):
    gang.step()
""",
    times=6,
)
