"""The script cannot be compiled."""

from tests.faults.catalogue.fault import Expected, Fault, Scene


def wait(scene: Scene) -> None:
    """It is known to whoever compiles it, which is the first thing that a rank does."""
    scene.until(lambda: scene.task()["attempts"], what="its first attempt")
    scene.stamp()


FAULT = Fault(
    """
import os
def train(rate:
    pass
""",
    Expected("RANK_FAILED", says=["SyntaxError", "train.py:2"]),
    inject=wait,
)
