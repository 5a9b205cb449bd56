"""Two nodes have two versions of one package; what one of them lacks fails there alone."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import os, sys
from knowable import NODE, RANK, knowable, when

sys.path.append(os.path.join(os.path.dirname(__file__), f"node{NODE}"))
import kernels
if NODE == 1:
    knowable()
kernels.fused_attention()  # here
when("never")
""",
    Expected("RANK_FAILED", rank=2, node=1, says=["AttributeError", "fused_attention", "train.py:{here}", "version"]),
    gpus=(2, 1),
    files={
        "node0/kernels.py": "__version__ = '2.1'\ndef fused_attention(): pass\n",
        "node1/kernels.py": "__version__ = '1.9'\n",
    },
)
