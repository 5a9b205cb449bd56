"""A rank's C code reads where it must not."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import ctypes
from gang import RANK, Gang, knowable

def fused_kernel():
    knowable()
    ctypes.string_at(0)  # here

gang = Gang()
for step in range(1000):
    gang.step()
    if step == 5 and RANK == 1:
        fused_kernel()
""",
    Expected("RANK_KILLED", rank=1, node=1, says=["SIGSEGV|segmentation"], shows=["train.py:{here}|line {here}"]),
)
