"""What one node sends to another is lost; the other way goes."""

from tests import netlab
from tests.faults.catalogue.fault import Expected, Fault, Scene
from tests.faults.catalogue.faults.link_dead import SCRIPT, begin


def cut(scene: Scene) -> None:
    scene.reached("training", 120)
    lab = scene.site.lab
    lab.drop(1, "-s", lab.address(0))
    scene.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("NETWORK_CUT", node=(0, 1)),
    environments=begin,
    inject=cut,
    needs=netlab.missing,
)
