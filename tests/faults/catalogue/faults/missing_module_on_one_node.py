"""A module is installed on one node and not on the other."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import os, sys
from knowable import NODE, knowable, when

if NODE == 0:
    sys.path.append(os.path.join(os.path.dirname(__file__), "packages"))
else:
    knowable()
import apex_of_ours  # here
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["apex_of_ours", "install"]),
    files={"packages/apex_of_ours.py": "fused = True\n"},
)
