"""A rank computes in C for ever, and keeps the interpreter."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import re
from gang import RANK, Gang, knowable

def parse(text):
    return re.match(r"(a+)+$", text)  # here

gang = Gang()
for step in range(2000):
    gang.step()
    if step == 60 and RANK == 1:
        knowable()
        parse("a" * 64 + "b")
""",
    Expected("HANG|HANG_SUSPECTED", rank=1, node=1, says=["train.py:{here}"]),
    ends=(),
)
