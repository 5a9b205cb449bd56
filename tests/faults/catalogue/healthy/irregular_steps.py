"""Steps between an instant and four seconds, and one of ten."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
import random
from gang import Gang

gang = Gang()
random.seed(7)
for step in range(20):
    gang.pace = random.choice([0.05, 0.2, 1.0, 4.0]) if step > 1 else 4.0
    gang.step()
gang.pace = 10.0
gang.step()
gang.pace = 0.05
for step in range(20):
    gang.step()
""",
    times=5,
)
