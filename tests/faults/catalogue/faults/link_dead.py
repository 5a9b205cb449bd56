"""The network between two nodes is cut in the middle of training."""

from tests import netlab
from tests.faults.catalogue.fault import Expected, Fault, Scene

SCRIPT = """
from gang import Gang, RANK, reached

gang = Gang()
for step in range(20000):
    gang.step()
    if step == 60 and RANK == 0:
        reached("training")
"""


def begin(scene: Scene) -> list[str]:
    site, ids = scene.ground.hosts(scene, 3)
    scene.site = site
    return ids


def cut(scene: Scene) -> None:
    scene.reached("training", 120)
    lab = scene.site.lab
    lab.drop(1, "-s", lab.address(2))
    lab.drop(2, "-s", lab.address(1))
    scene.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("NETWORK_CUT", node=(1, 2)),
    environments=begin,
    inject=cut,
    needs=netlab.missing,
)
