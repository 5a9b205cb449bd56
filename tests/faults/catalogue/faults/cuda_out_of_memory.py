"""The GPU has no memory left (PyTorch's own words)."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, knowable, torch

def attention():
    knowable()
    raise torch.OutOfMemoryError(  # here
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.19 GiB is "
        "free. Including non-PyTorch memory, this process has 77.94 GiB memory in use. Of the allocated memory 74.20 "
        "GiB is allocated by PyTorch, and 2.61 GiB is reserved by PyTorch but unallocated. If reserved but unallocated "
        "memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
        "documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")

gang = Gang()
for step in range(1000):
    gang.step()
    if step == 5 and RANK == 3:
        attention()
""",
    Expected("RANK_FAILED", rank=3, node=1, says=["out of memory", "2.50 GiB", "79.15 GiB", "batch|smaller"]),
    gpus=(2, 2),
)
