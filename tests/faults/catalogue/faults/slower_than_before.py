"""The whole gang falls to a third of its own speed."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import Gang, knowable

gang = Gang(pace=0.1)
for step in range(5000):
    gang.step()
    if step == 250:
        gang.pace = 0.5
        knowable()
""",
    Expected("SLOWER_THAN_BEFORE"),
    ends=(),
)
