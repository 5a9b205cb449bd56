"""A GPU's memory is broken (the driver's own words)."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, knowable

gang = Gang()
for step in range(1000):
    gang.step()
    if step == 5 and RANK == 1:
        knowable()
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered\\nCUDA kernel errors might be "  # here
                           "asynchronously reported at some other API call")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["ECC", "GPU", "cordon|replace|another node|take it out"]),
)
