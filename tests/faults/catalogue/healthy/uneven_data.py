"""One rank has less data than the other; DDP's join sees to it."""

from tests.faults.catalogue.fault import Healthy

HEALTHY = Healthy(
    """
from gang import RANK, Gang

gang = Gang()
with gang.model.join():
    for step in range(60 + 200 * RANK):
        gang.step()
""",
    times=6,
)
