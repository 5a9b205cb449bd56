"""NCCL cannot reach a peer (its own words)."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from gang import RANK, Gang, dist, knowable

gang = Gang()
for step in range(1000):
    gang.step()
    if step == 5 and RANK == 0:
        knowable()
        raise dist.DistBackendError(  # here
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, remote process exited or "
            "there was a network error, NCCL version 2.27.5\\nncclRemoteError: A call failed possibly due to a network "
            "error or a remote process exiting prematurely.\\nLast error:\\nsocketProgress: Connection closed by "
            "remote peer gpu-node-17<45611>")
""",
    Expected("RANK_FAILED", rank=0, node=0, says=["NCCL", "gpu-node-17"]),
)
