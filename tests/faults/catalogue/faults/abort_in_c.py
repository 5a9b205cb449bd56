"""A rank's C++ code gives up."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import ctypes, os
from gang import RANK, Gang, knowable

gang = Gang()
for step in range(1000):
    gang.step()
    if step == 5 and RANK == 0:
        os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\\n")
        knowable()
        ctypes.CDLL(None).abort()  # here
""",
    Expected("RANK_KILLED", rank=0, node=0, says=["SIGABRT"], shows=["std::bad_alloc"]),
)
