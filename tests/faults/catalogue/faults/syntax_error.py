"""The script cannot be compiled."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def wait_for_compilation(run: FaultRun) -> None:
    """It is known to whoever compiles it, which is the first thing that a rank does."""
    run.until(lambda: run.task()["attempts"], what="its first attempt")
    run.stamp()


FAULT = Fault(
    """
import os
def train(rate:
    pass
""",
    Expected("RANK_FAILED", says=["SyntaxError", "train.py:2"]),
    inject=wait_for_compilation,
)
