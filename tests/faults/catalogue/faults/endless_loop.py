"""A rank goes round in its own Python for ever: it computes, so nobody can be certain."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, knowable

def tokenise(text):
    while text:
        text = text.strip() or text  # here

gang = Gang()
for step in range(2000):
    gang.step()
    if step == 60 and RANK == 1:
        knowable()
        tokenise("x")
""",
    Expected("HANG|HANG_SUSPECTED", rank=1, node=1, says=["tokenise"]),
    ends=(),
)
