"""A script that imports nothing and prints nothing."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import time
for _ in range(15):
    time.sleep(1)
""",
    times=4,
)
